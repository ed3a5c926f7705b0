// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "kernels/rope_cuda.h"
#include "kernels/rotary_angle.cuh"
#include "kernels/team.cuh"

namespace tidemark::kernels::cuda {
namespace {

template <class C>
struct Heads {
  Input<C> input;
  HeadRows rows;
  Output<C> output;
  std::int64_t count;

  __host__ __device__ std::int64_t From(std::int64_t token, std::int64_t head) const {
    return token * rows.stride + rows.first + head * rows.apart;
  }
};

/// A pair of one token, in all its heads: their angle is the same. Behind all pairs come the elements in front of what
/// is turned, which are copied.
template <class C>
struct TurnPair {
  std::int64_t sequence, head_size, turned;
  TokenPlaces places;
  double theta;
  Rope::AnglesFrom angles_from;
  RotaryRow row;
  Input<C> angles;
  bool backward;
  Heads<C> q, k;

  __host__ __device__ void operator()(std::int64_t i) const {
    const std::int64_t half = turned / 2, token = i / (head_size - half), pair = i % (head_size - half);
    if (pair >= half) {
      Copy(q, token, pair - half);
      Copy(k, token, pair - half);
      return;
    }
    const std::int64_t place = places.Of(token % sequence, sequence);
    C cosine = 0, sine = 0;
    if (angles_from == Rope::AnglesFrom::computed) {
      const double angle = RotaryAngle(theta, turned, place, pair);
      cosine = static_cast<C>(std::cos(angle));
      sine = static_cast<C>(std::sin(angle));
    } else {
      const std::int64_t begin = (angles_from == Rope::AnglesFrom::rows ? token : place) * row.size();
      cosine = angles[begin + row.CosineOf(pair)];
      sine = angles[begin + row.SineOf(pair)];
    }
    sine = backward ? -sine : sine;
    Turn(q, token, pair, cosine, sine);
    Turn(k, token, pair, cosine, sine);
  }

  __host__ __device__ void Turn(const Heads<C>& heads, std::int64_t token, std::int64_t pair, C cosine, C sine) const {
    for (std::int64_t head = 0; head < heads.count; ++head) {
      const std::int64_t from = heads.From(token, head) + head_size - turned + pair;
      const std::int64_t to = (token * heads.count + head + 1) * head_size - turned + pair;
      const C low = heads.input[from], high = heads.input[from + turned / 2];
      heads.output.Set(to, low * cosine - high * sine);
      heads.output.Set(to + turned / 2, high * cosine + low * sine);
    }
  }

  __host__ __device__ void Copy(const Heads<C>& heads, std::int64_t token, std::int64_t at) const {
    for (std::int64_t head = 0; head < heads.count; ++head) {
      heads.output.Set((token * heads.count + head) * head_size + at, heads.input[heads.From(token, head) + at]);
    }
  }
};

void Turn(const Rope& op, bool backward, const ConstTensor& q, const ConstTensor& k, const ConstTensor& angles,
          const Tensor& q_out, const Tensor& k_out, const Queue& queue) {
  const HeadShape& shape = op.shape;
  TIDEMARK_CHECK(op.TurnedSize() % 2 == 0 && op.TurnedSize() <= shape.head_size);
  TIDEMARK_CHECK(q_out.type.elements == shape.query_elements() && k_out.type.elements == shape.key_elements());
  TIDEMARK_CHECK(q.type.dtype == q_out.type.dtype && k.type.dtype == k_out.type.dtype);
  TIDEMARK_CHECK(AreAnglesOf(op, angles.type));
  InArithmeticOf({q.type, k.type, angles.type}, [&]<class C>(C) {
    EachElement(queue, shape.tokens() * (shape.head_size - op.TurnedSize() / 2),
                TurnPair<C>{shape.sequence,
                            shape.head_size,
                            op.TurnedSize(),
                            op.places,
                            op.theta,
                            op.angles_from,
                            op.Row(),
                            angles,
                            backward,
                            {q, QueryRows(shape, q.type), q_out, shape.heads},
                            {k, KeyRows(shape, k.type), k_out, shape.kv_heads}});
  });
}

}  // namespace

void RopeForward(const Rope& op, const ConstTensor& q, const ConstTensor& k, const ConstTensor& angles,
                 const Tensor& q_out, const Tensor& k_out, const Queue& queue) {
  Turn(op, false, q, k, angles, q_out, k_out, queue);
}

void RopeBackward(const Rope& op, const ConstTensor& dq, const ConstTensor& dk, const ConstTensor& angles,
                  const Tensor& dq_out, const Tensor& dk_out, const Queue& queue) {
  Turn(op, true, dq, dk, angles, dq_out, dk_out, queue);
}

}  // namespace tidemark::kernels::cuda
