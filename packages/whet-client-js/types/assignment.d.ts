/**
 * @typedef {[version: number, weight: number]} Arm
 */
/**
 * An exponential waiting time with rate 1 for one unit and one version: > 0, the same everywhere.
 * @param {string} salt
 * @param {string} unit
 * @param {number} version
 */
export function waiting(salt: string, unit: string, version: number): number;
/**
 * The version of one unit. Weights are not negative and need not add up to 1; an arm with weight 0 gets nobody.
 * @param {string} salt
 * @param {string} unit
 * @param {readonly Arm[]} arms
 * @throws {UsageError} for an empty unit, no positive weight, or a weight that is negative or not finite
 */
export function assign(salt: string, unit: string, arms: readonly Arm[]): number;
/** What may be assigned: everything that one user, one session or one episode sees comes from one arm. */
export const UNITS: readonly ["user", "session", "episode"];
export type Arm = [version: number, weight: number];
