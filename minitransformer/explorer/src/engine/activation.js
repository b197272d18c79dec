/**
 * The activations of feed-forward networks, each with its derivative.
 *
 * @module activation
 */

/** @import { Activation } from "./types.js" */

const SLOPE = Math.sqrt(2 / Math.PI);
const CUBIC = 0.044715;

/** @type {Record<Activation, { value: (x: number) => number, derivative: (x: number) => number }>} */
export const ACTIVATIONS = {
  relu: {
    value: (x) => (x > 0 ? x : 0),
    derivative: (x) => (x > 0 ? 1 : 0),
  },

  // x · Φ(x), with the normal distribution's Φ. Source: Hendrycks & Gimpel 2016, §2.
  gelu: {
    value: (x) => x * probabilityBelow(x),
    derivative: (x) => probabilityBelow(x) + x * density(x),
  },

  // GPT-2's, with Φ(x) ≈ (1 + tanh(√(2/π) · (x + 0.044715 x³))) / 2.
  gelu_tanh: {
    value: (x) => (x * (1 + bent(x))) / 2,
    derivative: (x) => {
      const t = bent(x);
      return (1 + t + x * (1 - t * t) * SLOPE * (1 + 3 * CUBIC * x * x)) / 2;
    },
  },

  // x · σ(x), with σ(x) = 1 / (1 + e⁻ˣ), whose slope is σ (1 − σ).
  silu: {
    value: (x) => x * sigmoid(x),
    derivative: (x) => sigmoid(x) * (1 + x * (1 - sigmoid(x))),
  },
};

/** @param {number} x */
function sigmoid(x) {
  return 1 / (1 + Math.exp(-x));
}

/** @param {number} x */
function bent(x) {
  return Math.tanh(SLOPE * x * (1 + CUBIC * x * x));
}

/** The standard normal density. @param {number} x */
function density(x) {
  return Math.exp((-x * x) / 2) / Math.sqrt(2 * Math.PI);
}

/**
 * The probability that a standard normal number is below x, to 7.5e-8. Source: Abramowitz & Stegun 1964, eq. 26.2.17.
 * @param {number} x
 */
function probabilityBelow(x) {
  const t = 1 / (1 + 0.2316419 * Math.abs(x));
  const sum = t * (0.31938153 + t * (-0.356563782 + t * (1.781477937 + t * (-1.821255978 + t * 1.330274429))));
  const beyond = density(x) * sum; // 1 − Φ(|x|)
  return x < 0 ? beyond : 1 - beyond;
}
