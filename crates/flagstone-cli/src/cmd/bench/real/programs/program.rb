# A mixed Ruby program for `flagstone bench real-ruby`: objects, hashes, strings, sorting, trees.
Row = Struct.new(:id, :name, :tags)
size = (ARGV[0] || 1).to_i
check = 0

def tree(depth)
  depth.zero? ? [nil, nil] : [tree(depth - 1), tree(depth - 1)]
end

def count(node)
  node[0] ? count(node[0]) + count(node[1]) + 1 : 1
end

3.times do |turn|
  by_tag = Hash.new { |hash, tag| hash[tag] = [] }
  rows = (1..size * 4000).map do |id|
    row = Row.new(id, format("user %05d", id * 7919 % 10_007), (1..5).map { |step| "tag#{id * step % 97}" })
    row.tags.each { |tag| by_tag[tag] << row }
    row
  end
  order = rows.sort_by { |row| [row.name, row.id] }
  text = order.map { |row| "#{row.id}\t#{row.name}\t#{row.tags.join(',')}" }.join("\n")
  words = text.split(/[\s,]+/).tally
  check += words.size + text.gsub(/user (\d+)/, '<\1>').length + order[turn].id
  check += by_tag.values.sum(&:size)
  size.times { check += count(tree(12)) }
end
puts check
