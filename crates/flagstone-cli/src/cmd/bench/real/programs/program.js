// A mixed JavaScript program for `flagstone bench real-node`: objects, maps, JSON, buffers, text.
const size = Number(process.argv[2] || 1);
let check = 0;
for (let turn = 0; turn < 3; turn++) {
  const rows = [];
  const byTag = new Map();
  for (let id = 1; id <= size * 5000; id++) {
    const tags = [1, 2, 3, 4, 5].map((step) => `tag${(id * step) % 97}`);
    const row = { id, name: `user ${(id * 7919) % 10007}`, tags, score: (id * 31) % 1003 / 7 };
    rows.push(row);
    for (const tag of tags) {
      if (!byTag.has(tag)) byTag.set(tag, new Set());
      byTag.get(tag).add(row);
    }
  }
  const text = JSON.stringify(rows);
  const back = JSON.parse(text);
  back.sort((a, b) => a.score - b.score || a.id - b.id);
  check += text.length + back[turn].id + byTag.size;
  const parts = [];
  for (let n = 0; n < size * 400; n++) parts.push(Buffer.alloc(1000 + (n * 37) % 9000, n % 251));
  const whole = Buffer.concat(parts);
  check += whole[whole.length >> 1] + whole.toString('base64').length;
  const words = {};
  for (const word of text.split(/[",:{}\[\]]+/)) words[word] = (words[word] || 0) + 1;
  check += Object.keys(words).length;
}
console.log(check);
