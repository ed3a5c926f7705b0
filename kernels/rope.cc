// SPDX-License-Identifier: Apache-2.0
#include "kernels/rope.h"

#include <cmath>
#include <optional>
#include <vector>

#include "kernels/stretch.h"

namespace tidemark::kernels {
namespace {

/// Sines and cosines of one place in the sequence, for each pair of a head.
class Angles {
 public:
  explicit Angles(const Rope& op) : pairs_(op.TurnedSize() / 2) {
    for (std::int64_t i = 0; i < pairs_; ++i) {
      const double frequency = RotaryFrequency(op.theta, op.TurnedSize(), i);
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

  double Cosine(std::size_t pair) const { return cos_[pair]; }
  double Sine(std::size_t pair) const { return sin_[pair]; }

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

/// Cosines and sines of a token's pairs, wherever they come from.
template <class C>
class TokenAngles {
 public:
  TokenAngles(const Rope& op, const ConstTensor& angles, bool backward)
      : op_(op),
        backward_(backward),
        row_(op.Row()),
        rows_(angles, row_.size()),
        cosines_(static_cast<std::size_t>(op.TurnedSize() / 2)),
        sines_(cosines_.size()) {
    if (op.angles_from == Rope::AnglesFrom::computed) {
      computed_.emplace(op);
    }
  }

  /// Nothing is done where the last token had the same.
  void MoveTo(std::int64_t token) {
    const std::int64_t sequence = op_.shape.sequence;
    const std::int64_t number =
        op_.angles_from == Rope::AnglesFrom::rows ? token : op_.places.Of(token % sequence, sequence);
    if (number == number_) {
      return;
    }
    number_ = number;
    if (computed_) {
      computed_->MoveTo(number);
      Take([this](std::int64_t i) { return computed_->Cosine(static_cast<std::size_t>(i)); },
           [this](std::int64_t i) { return computed_->Sine(static_cast<std::size_t>(i)); });
    } else {
      const C* numbers = rows_.At(number * row_.size(), row_.size());
      Take([&](std::int64_t i) { return numbers[row_.CosineOf(i)]; },
           [&](std::int64_t i) { return numbers[row_.SineOf(i)]; });
    }
  }

  const C* cosines() const { return cosines_.data(); }
  const C* sines() const { return sines_.data(); }

 private:
  template <class Cosine, class Sine>
  void Take(Cosine cosine, Sine sine) {
    for (std::size_t i = 0; i < cosines_.size(); ++i) {
      const auto pair = static_cast<std::int64_t>(i);
      cosines_[i] = static_cast<C>(cosine(pair));
      sines_[i] = static_cast<C>(backward_ ? -sine(pair) : sine(pair));
    }
  }

  Rope op_;
  bool backward_;
  RotaryRow row_;
  Reader<C> rows_;
  std::vector<C> cosines_, sines_;
  std::optional<Angles> computed_;
  std::int64_t number_ = -1;  ///< of the row
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
void Turn(const Rope& op, bool backward, const ConstTensor& q, const ConstTensor& k, const ConstTensor& angles,
          const Tensor& q_out, const Tensor& k_out) {
  const HeadShape& shape = op.shape;
  const std::int64_t half = op.TurnedSize() / 2, kept = shape.head_size - 2 * half;
  const std::int64_t q_width = shape.heads * shape.head_size, k_width = shape.kv_heads * shape.head_size;
  const HeadRows q_rows = QueryRows(shape, q.type), k_rows = KeyRows(shape, k.type);
  Reader<C> queries(q, q_width), keys(k, k_width);
  Writer<C> turned_queries(q_out, q_width), turned_keys(k_out, k_width);
  TokenAngles<C> turn(op, angles, backward);
  for (std::int64_t first = 0; first < shape.sequence; ++first) {
    for (std::int64_t token = first; token < shape.tokens(); token += shape.sequence) {
      turn.MoveTo(token);
      TurnHeads(shape.heads, kept, half, queries.At(token * q_rows.stride + q_rows.first, q_width), turn.cosines(),
                turn.sines(), turned_queries.At(token * q_width, q_width));
      turned_queries.Done(token * q_width, q_width);
      TurnHeads(shape.kv_heads, kept, half, keys.At(token * k_rows.stride + k_rows.first, k_width), turn.cosines(),
                turn.sines(), turned_keys.At(token * k_width, k_width));
      turned_keys.Done(token * k_width, k_width);
    }
  }
}

void Check(const Rope& op, const ConstTensor& q, const ConstTensor& k, const ConstTensor& angles, const Tensor& q_out,
           const Tensor& k_out) {
  TIDEMARK_CHECK(op.TurnedSize() % 2 == 0 && op.TurnedSize() <= op.shape.head_size);
  TIDEMARK_CHECK(q_out.type.elements == op.shape.query_elements() && k_out.type.elements == op.shape.key_elements());
  TIDEMARK_CHECK(q.type.dtype == q_out.type.dtype && k.type.dtype == k_out.type.dtype);
  TIDEMARK_CHECK(AreAnglesOf(op, angles.type));
}

}  // namespace

RopeTypes RopeOutputs(const Rope& op, DType dtype) {
  return {{dtype, op.shape.query_elements()}, {dtype, op.shape.key_elements()}};
}

bool AreAnglesOf(const Rope& op, const TensorType& angles) {
  const std::int64_t size = op.Row().size(), sequence = op.shape.sequence;
  switch (op.angles_from) {
    case Rope::AnglesFrom::computed:
      return angles.elements == 0;
    case Rope::AnglesFrom::table:
      return angles.elements % size == 0 && op.places.Of(sequence - 1, sequence) < angles.elements / size;
    case Rope::AnglesFrom::rows:
      return angles.elements == op.shape.tokens() * size;
  }
  return false;
}

void RopeForward(const Rope& op, const ConstTensor& q, const ConstTensor& k, const ConstTensor& angles,
                 const Tensor& q_out, const Tensor& k_out) {
  Check(op, q, k, angles, q_out, k_out);
  InArithmeticOf({q.type, k.type, angles.type}, [&]<class C>(C) { Turn<C>(op, false, q, k, angles, q_out, k_out); });
}

void RopeBackward(const Rope& op, const ConstTensor& dq, const ConstTensor& dk, const ConstTensor& angles,
                  const Tensor& dq_out, const Tensor& dk_out) {
  Check(op, dq, dk, angles, dq_out, dk_out);
  InArithmeticOf({dq.type, dk.type, angles.type},
                 [&]<class C>(C) { Turn<C>(op, true, dq, dk, angles, dq_out, dk_out); });
}

}  // namespace tidemark::kernels
