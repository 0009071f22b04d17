/**
 * BLAKE2b (RFC 7693) with a digest of 8 bytes and no key. The length of a digest is a part of the hash, and neither Node's crypto
 * nor Web Crypto has one of 8 bytes. 64-bit words are pairs of 32-bit ones, the low one first.
 */

const IV = new Uint32Array([
  0xf3bcc908, 0x6a09e667, 0x84caa73b, 0xbb67ae85, 0xfe94f82b, 0x3c6ef372, 0x5f1d36f1, 0xa54ff53a,
  0xade682d1, 0x510e527f, 0x2b3e6c1f, 0x9b05688c, 0xfb41bd6b, 0x1f83d9ab, 0x137e2179, 0x5be0cd19,
]);

const SIGMA = [
  [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15],
  [14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3],
  [11, 8, 12, 0, 5, 2, 15, 13, 10, 14, 3, 6, 7, 1, 9, 4],
  [7, 9, 3, 1, 13, 12, 11, 14, 2, 6, 5, 10, 4, 0, 15, 8],
  [9, 0, 5, 7, 2, 4, 10, 15, 14, 1, 11, 12, 6, 8, 3, 13],
  [2, 12, 6, 10, 0, 11, 8, 3, 4, 13, 7, 5, 15, 14, 1, 9],
  [12, 5, 1, 15, 14, 13, 4, 10, 0, 7, 6, 3, 9, 2, 8, 11],
  [13, 11, 7, 14, 12, 1, 3, 9, 5, 0, 15, 4, 8, 6, 2, 10],
  [6, 15, 14, 9, 11, 3, 0, 8, 12, 2, 13, 7, 1, 4, 10, 5],
  [10, 2, 8, 4, 7, 6, 1, 5, 15, 11, 9, 14, 3, 12, 13, 0],
];

const BLOCK = 128;

/**
 * The first 64 bits as two numbers of 32 bits: those of the first four bytes, read as a big-endian number, then the others.
 * @param {Uint8Array} data
 * @returns {[number, number]}
 */
export function blake2b64(data) {
  const h = new Uint32Array(IV);
  h[0] = word(h, 0) ^ 0x01010000 ^ 8;
  const block = new Uint8Array(BLOCK);
  const m = new DataView(block.buffer);
  for (let start = 0; start === 0 || start < data.length; start += BLOCK) {
    const end = Math.min(start + BLOCK, data.length);
    block.fill(0);
    block.set(data.subarray(start, end));
    compress(h, m, end, end === data.length);
  }
  const digest = new DataView(new ArrayBuffer(8));
  digest.setUint32(0, word(h, 0), true);
  digest.setUint32(4, word(h, 1), true);
  return [digest.getUint32(0), digest.getUint32(4)];
}

/** @param {Uint32Array} words @param {number} place */
function word(words, place) {
  return /** @type {number} */ (words[place]);
}

/**
 * @param {Uint32Array} h the state
 * @param {DataView} m a block
 * @param {number} count bytes so far
 * @param {boolean} last
 */
function compress(h, m, count, last) {
  const v = new Uint32Array(32);
  v.set(h);
  v.set(IV, 16);
  v[24] = word(v, 24) ^ count;
  v[25] = word(v, 25) ^ Math.floor(count / 2 ** 32);
  if (last) {
    v[28] = ~word(v, 28);
    v[29] = ~word(v, 29);
  }
  for (let round = 0; round < 12; round++) {
    const s = /** @type {number[]} */ (SIGMA[round % 10]);
    mix(v, m, 0, 8, 16, 24, s, 0);
    mix(v, m, 2, 10, 18, 26, s, 2);
    mix(v, m, 4, 12, 20, 28, s, 4);
    mix(v, m, 6, 14, 22, 30, s, 6);
    mix(v, m, 0, 10, 20, 30, s, 8);
    mix(v, m, 2, 12, 22, 24, s, 10);
    mix(v, m, 4, 14, 16, 26, s, 12);
    mix(v, m, 6, 8, 18, 28, s, 14);
  }
  for (let i = 0; i < 16; i++) h[i] = word(h, i) ^ word(v, i) ^ word(v, i + 16);
}

/**
 * @param {Uint32Array} v
 * @param {DataView} m
 * @param {number} a
 * @param {number} b
 * @param {number} c
 * @param {number} d
 * @param {number[]} s
 * @param {number} at
 */
function mix(v, m, a, b, c, d, s, at) {
  const x = (s[at] ?? 0) * 8;
  const y = (s[at + 1] ?? 0) * 8;
  add(v, a, word(v, b), word(v, b + 1));
  add(v, a, m.getUint32(x, true), m.getUint32(x + 4, true));
  rotate(v, d, a, 32);
  add(v, c, word(v, d), word(v, d + 1));
  rotate(v, b, c, 24);
  add(v, a, word(v, b), word(v, b + 1));
  add(v, a, m.getUint32(y, true), m.getUint32(y + 4, true));
  rotate(v, d, a, 16);
  add(v, c, word(v, d), word(v, d + 1));
  rotate(v, b, c, 63);
}

/**
 * Add a 64-bit number to the one at `at`.
 * @param {Uint32Array} v
 * @param {number} at
 * @param {number} low
 * @param {number} high
 */
function add(v, at, low, high) {
  const sum = word(v, at) + low;
  v[at] = sum;
  v[at + 1] = word(v, at + 1) + high + (sum >= 2 ** 32 ? 1 : 0);
}

/**
 * v[d] = (v[d] ^ v[a]) rotated to the right.
 * @param {Uint32Array} v
 * @param {number} d
 * @param {number} a
 * @param {24 | 32 | 16 | 63} bits
 */
function rotate(v, d, a, bits) {
  const low = word(v, d) ^ word(v, a);
  const high = word(v, d + 1) ^ word(v, a + 1);
  if (bits === 32) {
    v[d] = high;
    v[d + 1] = low;
  } else if (bits === 63) {
    v[d] = (low << 1) | (high >>> 31);
    v[d + 1] = (high << 1) | (low >>> 31);
  } else {
    v[d] = (low >>> bits) | (high << (32 - bits));
    v[d + 1] = (high >>> bits) | (low << (32 - bits));
  }
}
