/**
 * The first 64 bits as two numbers of 32 bits: those of the first four bytes, read as a big-endian number, then the others.
 * @param {Uint8Array} data
 * @returns {[number, number]}
 */
export function blake2b64(data: Uint8Array): [number, number];
