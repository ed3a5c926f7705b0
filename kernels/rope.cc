// SPDX-License-Identifier: Apache-2.0
#include "kernels/rope.h"

#include <cmath>
#include <vector>

#include "kernels/stretch.h"

namespace tidemark::kernels {
namespace {

/// Sines and cosines of one place in the sequence, for each pair of a head.
class Angles {
 public:
  explicit Angles(const Rope& op) : pairs_(op.TurnedSize() / 2) {
    for (std::int64_t i = 0; i < pairs_; ++i) {
      const double frequency = std::pow(op.theta, -2 * static_cast<double>(i) / static_cast<double>(op.TurnedSize()));
      frequencies_.push_back(frequency);
      step_cos_.push_back(std::cos(frequency));
      step_sin_.push_back(std::sin(frequency));
    }
    cos_.resize(frequencies_.size());
    sin_.resize(frequencies_.size());
    Set(op.places.first);
  }

  /// To a place: the next one by the addition theorem, which loses an ulp or two of fp64 a step; from scratch after
  /// kFresh of them, and to any other.
  void MoveTo(std::int64_t position) {
    if (position == position_) {
      return;
    }
    if (position != position_ + 1 || (position - first_) % kFresh == 0) {
      Set(position);
      return;
    }
    position_ = position;
    Each(pairs_, [c = cos_.data(), s = sin_.data(), dc = step_cos_.data(), ds = step_sin_.data()](std::int64_t i) {
      const double cosine = c[i] * dc[i] - s[i] * ds[i];
      s[i] = s[i] * dc[i] + c[i] * ds[i];
      c[i] = cosine;
    });
  }

  template <class C>
  void CopyTo(C* cosines, C* sines, bool backward) const {
    for (std::size_t i = 0; i < cos_.size(); ++i) {
      cosines[i] = static_cast<C>(cos_[i]);
      sines[i] = static_cast<C>(backward ? -sin_[i] : sin_[i]);
    }
  }

 private:
  static constexpr std::int64_t kFresh = 32;

  void Set(std::int64_t position) {
    position_ = first_ = position;
    for (std::size_t i = 0; i < frequencies_.size(); ++i) {
      const double angle = static_cast<double>(position) * frequencies_[i];
      cos_[i] = std::cos(angle);
      sin_[i] = std::sin(angle);
    }
  }

  std::int64_t pairs_, position_ = 0, first_ = 0;
  std::vector<double> frequencies_, step_cos_, step_sin_, cos_, sin_;
};

/// The heads of one token, of which the first `kept` elements stay.
template <class C>
void TurnHeads(std::int64_t heads, std::int64_t kept, std::int64_t half, const C* x, const C* cosines, const C* sines,
               C* y) {
  for (std::int64_t head = 0; head < heads; ++head) {
    const std::int64_t first = head * (kept + 2 * half);
    Each(kept, [a = x + first, b = y + first](std::int64_t i) { b[i] = a[i]; });
    Each(half, [=, a = x + first + kept, b = y + first + kept](std::int64_t i) {
      const C low = a[i], high = a[i + half];
      b[i] = low * cosines[i] - high * sines[i];
      b[i + half] = high * cosines[i] + low * sines[i];
    });
  }
}

template <class C>
void Turn(const Rope& op, bool backward, const ConstTensor& q, const ConstTensor& k, const Tensor& q_out,
          const Tensor& k_out) {
  const HeadShape& shape = op.shape;
  const std::int64_t half = op.TurnedSize() / 2, kept = shape.head_size - 2 * half;
  const std::int64_t q_width = shape.heads * shape.head_size, k_width = shape.kv_heads * shape.head_size;
  const HeadRows q_rows = QueryRows(shape, q.type), k_rows = KeyRows(shape, k.type);
  Reader<C> queries(q, q_width), keys(k, k_width);
  Writer<C> turned_queries(q_out, q_width), turned_keys(k_out, k_width);
  std::vector<C> cosines(static_cast<std::size_t>(half)), sines(cosines.size());
  Angles angles(op);
  for (std::int64_t first = 0; first < shape.sequence; ++first) {
    angles.MoveTo(op.places.Of(first, shape.sequence));
    angles.CopyTo(cosines.data(), sines.data(), backward);
    for (std::int64_t token = first; token < shape.tokens(); token += shape.sequence) {
      TurnHeads(shape.heads, kept, half, queries.At(token * q_rows.stride + q_rows.first, q_width), cosines.data(),
                sines.data(), turned_queries.At(token * q_width, q_width));
      turned_queries.Done(token * q_width, q_width);
      TurnHeads(shape.kv_heads, kept, half, keys.At(token * k_rows.stride + k_rows.first, k_width), cosines.data(),
                sines.data(), turned_keys.At(token * k_width, k_width));
      turned_keys.Done(token * k_width, k_width);
    }
  }
}

void Check(const Rope& op, const ConstTensor& q, const ConstTensor& k, const Tensor& q_out, const Tensor& k_out) {
  TIDEMARK_CHECK(op.TurnedSize() % 2 == 0 && op.TurnedSize() <= op.shape.head_size);
  TIDEMARK_CHECK(q_out.type.elements == op.shape.query_elements() && k_out.type.elements == op.shape.key_elements());
  TIDEMARK_CHECK(q.type.dtype == q_out.type.dtype && k.type.dtype == k_out.type.dtype);
}

}  // namespace

RopeTypes RopeOutputs(const Rope& op, DType dtype) {
  return {{dtype, op.shape.query_elements()}, {dtype, op.shape.key_elements()}};
}

void RopeForward(const Rope& op, const ConstTensor& q, const ConstTensor& k, const Tensor& q_out, const Tensor& k_out) {
  Check(op, q, k, q_out, k_out);
  InArithmeticOf({q.type, k.type}, [&]<class C>(C) { Turn<C>(op, false, q, k, q_out, k_out); });
}

void RopeBackward(const Rope& op, const ConstTensor& dq, const ConstTensor& dk, const Tensor& dq_out,
                  const Tensor& dk_out) {
  Check(op, dq, dk, dq_out, dk_out);
  InArithmeticOf({dq.type, dk.type}, [&]<class C>(C) { Turn<C>(op, true, dq, dk, dq_out, dk_out); });
}

}  // namespace tidemark::kernels
