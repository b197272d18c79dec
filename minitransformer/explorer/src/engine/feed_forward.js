/**
 * The position-wise network of a block: `activation(x W₁ + b₁) W₂ + b₂`, or gated
 * `(activation(x W_gate) · x W_up) W₂`. Source: Vaswani 2017, §3.3, eq. 2; Shazeer 2020, eq. 6.
 *
 * @module feed_forward
 */

/** @import { FeedForwardConfig, FeedForwardTrace, Matrix } from "./types.js" */
/** @import { Linear } from "./linear.js" */
import { ACTIVATIONS } from "./activation.js";
import { linearBackward, linearForward } from "./linear.js";
import { zeros } from "./matrix.js";

/** @typedef {{ config: FeedForwardConfig, expand: Linear, contract: Linear }} FeedForward */

/**
 * x (T, C) → (T, C).
 * @param {FeedForward} layer @param {Matrix} x @returns {{ out: Matrix, trace: FeedForwardTrace }}
 */
export function feedForwardForward({ config, expand, contract }, x) {
  const { dFf, gated } = config;
  const { value } = ACTIVATIONS[config.activation];
  const hidden = linearForward(expand, x); // (T, F), or (T, 2F): gate, then up
  const activated = zeros(x.rows, dFf);
  for (let t = 0; t < x.rows; t++) {
    for (let f = 0; f < dFf; f++) {
      const place = t * hidden.cols + f;
      const active = value(hidden.data[place]);
      activated.data[t * dFf + f] = gated ? active * hidden.data[place + dFf] : active;
    }
  }
  return { out: linearForward(contract, activated), trace: { hidden, activated } };
}

/**
 * Returns dx.
 * @param {FeedForward} layer @param {Matrix} dout (T, C) @param {FeedForwardTrace} trace @returns {Matrix}
 */
export function feedForwardBackward({ config, expand, contract }, dout, { hidden }) {
  const { dFf, gated } = config;
  const { value, derivative } = ACTIVATIONS[config.activation];
  const dactivated = linearBackward(contract, dout); // out = activated @ W₂ + b₂
  const dhidden = zeros(hidden.rows, hidden.cols);
  for (let t = 0; t < hidden.rows; t++) {
    for (let f = 0; f < dFf; f++) {
      const place = t * hidden.cols + f;
      const dy = dactivated.data[t * dFf + f];
      const slope = derivative(hidden.data[place]);
      if (gated) {
        dhidden.data[place] = dy * hidden.data[place + dFf] * slope; // activated = activation(gate) * up
        dhidden.data[place + dFf] = dy * value(hidden.data[place]); // activated = activation(gate) * up
      } else {
        dhidden.data[place] = dy * slope; // activated = activation(hidden)
      }
    }
  }
  return linearBackward(expand, dhidden); // hidden = x @ W₁ + b₁
}
