// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <span>
#include <string>

#include "base/result.h"
#include "models/configs/value.h"
#include "models/machine/machine.h"
#include "models/network/operator.h"

namespace tidemark {

// Measured rates of a machine, as `tidemark calibrate` writes them. A roofline with two numbers is far off for kernels
// on a processor's cores, whose rate depends on the kind, on the dtype they convert and on the cache that their
// operands fit in. So a machine may have a curve for each kind of kernel: work a second by size. What the size and the
// work of an operator are is said here and nowhere else: who measures and who predicts mean the same.
//
//   kind                                      size                        work
//   gemm, gemm_inner, gemm_unaligned          smallest of m, n and k      operations
//   gemm_small                                operations                  operations
//   attention, attention_wide, and backward   sequence                    operations
//   all others                                bytes moved                 bytes moved
//
// gemm_inner: the smallest is k, over which products are summed. Each tile of the result has then a short loop between
// its beginning and its end, which many long ones hide and short ones do not.
//
// gemm_unaligned: a side is no multiple of 16 bytes (GPT-2's vocabulary of 50257). A GPU copies matrices in pieces of
// 16 bytes (CUDA driver API, cuTensorMapEncodeTiled: strides are multiples of 16), and a library's products of other
// rows of 16 bits take several times as long. Which two sides lie in memory as rows a Gemm does not say: a number of
// tokens that is no multiple counts as well, though it costs nothing.
//
// gemm_small: a product takes no less than one with as many operations whose sides are alike, however well its smallest
// dimension does in a larger one: its few tiles fill the processors unevenly, and begin and end together.
//
// Both are measured of products whose tiles fill the processors; what others lack is sim/cost/kernel_time.cc's to say.
//
// attention_wide: heads of more than 64, which the executor's kernels compute in other tiles
// (kernels/attention_plan.cuh). layer_norm has two statistics and two vectors, norm one. dropout draws a random number
// for each element, which takes longer than moving it; a column_sum shares its rows out and adds up what comes of that.
// optimizer_update_narrow: see below.

/// A kind of kernel that a machine may have a curve for: the end of its key in a machine file.
struct RatedKind {
  std::string key;  ///< "gemm.fp32"
  bool arithmetic;  ///< work is counted in operations, not in bytes
};
std::span<const RatedKind> RatedKinds();

struct RatedWork {
  std::string key;
  std::int64_t size = 0;
  double work = 0;
  std::string otherwise = {};  ///< the kind to take where a machine has no curve of this one; none: empty
};

/// Nothing for what has no kind: rows of a table network, and dtypes that nobody measures.
///
/// An operator that streams through memory once (Pointwise) does not say its dtypes. It is taken for one that only
/// writes or copies ("stream") where it moves up to 4 bytes an element, for one of 16-bit tensors up to 10 (a GLU's
/// backward pass moves five), and else for one of fp32; and for one that takes an exponential ("activation") from 5
/// operations an element on. Nor does an update: up to 14 bytes an element (AdamW reads four tensors and writes three)
/// are of 16-bit tensors.
std::optional<RatedWork> WorkOf(const Operator& op);

/// Whether a GPU copies all of a product's sides in its pieces (gemm_unaligned, above).
bool IsAligned(const Gemm& op);

/// Of matrix products: by "gemm_small", which they are not faster than. An operator of two products is sized as one.
std::optional<RatedWork> SmallWorkOf(const Operator& op);

/// The curve at a size: a power law between two points, its ends beyond them.
double RateAt(const RateCurve& curve, std::int64_t size);

/// "64: 41.2 GFLOP/s, 256: 90 GFLOP/s", or of GB/s: how a curve is spelled in a machine file.
struct RateForm {
  bool arithmetic = true;
  Result<RateCurve> Read(const ConfigValue& value) const;
  std::string Write(const RateCurve& curve) const;
  std::string Example() const;
};

}  // namespace tidemark
