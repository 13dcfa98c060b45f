-- A mixed Lua program for `flagstone bench real-lua`: tables, strings, closures, trees, sorting.
local size = tonumber(arg[1]) or 1
local check = 0

local function tree(depth)
  if depth == 0 then return { 1 } end
  return { tree(depth - 1), tree(depth - 1) }
end

local function count(node)
  if node[2] == nil then return 1 end
  return count(node[1]) + count(node[2])
end

for turn = 1, 3 do
  local rows, by_tag = {}, {}
  for id = 1, size * 5000 do
    local row = { id = id, name = string.format("user %05d", id * 7919 % 10007), tags = {} }
    for step = 1, 5 do
      local tag = "tag" .. (id * step % 97)
      row.tags[step] = tag
      by_tag[tag] = by_tag[tag] or {}
      table.insert(by_tag[tag], row)
    end
    row.show = function() return row.name .. ":" .. row.id end
    rows[id] = row
  end
  table.sort(rows, function(a, b)
    if a.name ~= b.name then return a.name < b.name end
    return a.id < b.id
  end)
  local lines = {}
  for at, row in ipairs(rows) do lines[at] = row.show() .. " " .. table.concat(row.tags, ",") end
  local text = table.concat(lines, "\n")
  local words = {}
  for word in text:gmatch("[^%s,:]+") do words[word] = (words[word] or 0) + 1 end
  for _ = 1, size do check = check + count(tree(13)) end
  check = check + #text + rows[turn].id + words["tag1"]
end
print(check)
