// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "sim/program/verify_role.h"
#include "sim/program/window_factor.h"

namespace tidemark {

/// Follows gradients from the loss to the optimizer and reports those that arrive wrong. All roles are well-formed.
///
/// How gradients are followed
/// --------------------------
/// A backward pass is linear in the gradient of its loss, and so is everything a data-parallel system does with
/// gradients. So a buffer's content is described by the factors with which it contains the gradients of microbatches:
///
///   loss        the gradient of the microbatch under way, between kernels of the backward pass; born in the first
///               backward kernel of the loss with that kernel's scale (1/M)
///   weight      for each (backward kernel that wrote a weight's gradient, microbatch) one factor. A kernel that reads
///               such values writes their sum times its scale: adding, copying, packing and casting are all that.
///               Packing several gradients into one buffer is a sum too, since their kernels differ.
///
/// GradCache's loss begins in a phase of its own; its gradient waits in a cache, and the backward pass of each chunk
/// takes its part from there, so the cached factor is that of every chunk. An encoder that serves both sides of a pair
/// has two backward passes over a microbatch, whose gradients are different sources.
///
/// A kernel of the backward pass that reads `loss` values and writes a buffer of category gradient, accumulator or
/// bucket makes a weight gradient. A kernel that reads no gradient writes none (zeroing, gathering weights).
///
/// A fused loss makes the gradients of its head in the forward pass, chunk by chunk, and the backward pass scales them.
/// They are followed from that kernel on; that every chunk is in their sum is not.
///
/// A copy between the host and the device that goes to one parameter's buffer takes what is that parameter's
/// (parameter_sources.h).
///
/// Two things about kernels of the optimizer: what one writes into a workspace is a number about gradients (a norm) and
/// no gradient; and one that writes only what it reads changes each of these buffers by itself (it scales them).
///
/// Ranks of a group run one program, so a value looks alike from each of them: a factor for what the rank itself
/// contributed and one for what each other rank did, for the group over which data is split ("dp") and for that over
/// which shards are repeated ("replicas"). A reduction over n ranks that scales by s turns (own, other) into
/// s (own + (n - 1) other) for both. A reduction that scatters into its own input leaves the rest of the buffer as it
/// was, so own part and rest are kept apart: that is what makes a second such reduction of one window wrong. The same
/// for a kernel that adds a shard back to its own part of a buffer.
///
/// At an optimizer's update every gradient must have the factor 1/(M N) for each of the window's M microbatches, on
/// behalf of all N ranks; and no gradient may stay behind. Returns how much of its gradient each window's optimizer
/// gets, as far as the findings leave room to look.
std::vector<WindowFactor> CheckGradients(const StepProgram& step, Findings& findings);

}  // namespace tidemark
