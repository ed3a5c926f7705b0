// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include "models/network/block.h"

namespace tidemark {

/// A block whose backward actions come in two parts: gradients of inputs first, then what can wait.
struct SplitBlock {
  Block block;
  Block whole;              ///< as it was, with tensors where `block` has them: a program has one buffer for both
  std::size_t weights = 0;  ///< backward actions before those that can wait
};

/// Kernels that make gradients of weights only can wait (linear layers: zero bubble, arXiv 2401.10241, and DualPipe's
/// WeightGradStore), and so can what only they read, as an input that is gathered again. They keep what they read: the
/// layer's input and the gradient of its output. Where one kernel makes the gradients of its input and of its weight (a
/// norm), the latter lies in a small tensor of its own until the second part hands it over.
SplitBlock SplitBackward(const Block& block, DType gradients);

}  // namespace tidemark
