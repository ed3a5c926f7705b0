// SPDX-License-Identifier: Apache-2.0
#include <functional>

#include "kernels/glu_cuda.h"
#include "kernels/glu_rows.cuh"

namespace tidemark::kernels::cuda {
namespace {

template <class C>
struct SiluRow {
  std::int64_t width;
  InputRows<Input<C>> gate;
  OutputRows<Output<C>> silu;
  __host__ __device__ void operator()(const Team& team, std::int64_t row) const {
    team.Each(0, width, [&](auto at) { silu.Set(row, at, Map([](C x) { return Silu(x); }, gate.At(row, at))); });
  }
};

template <class C>
struct ProductRow {
  std::int64_t width;
  InputRows<Input<C>> silu, up;
  OutputRows<Output<C>> output;
  __host__ __device__ void operator()(const Team& team, std::int64_t row) const {
    team.Each(0, width,
              [&](auto at) { output.Set(row, at, Map(std::multiplies<>(), silu.At(row, at), up.At(row, at))); });
  }
};

template <class C>
struct ProductBackwardRow {
  std::int64_t width;
  InputRows<Input<C>> output_gradient, silu, up;
  OutputRows<Output<C>> silu_gradient, up_gradient;
  __host__ __device__ void operator()(const Team& team, std::int64_t row) const {
    team.Each(0, width, [&](auto at) {
      const auto dy = output_gradient.At(row, at), s = silu.At(row, at), u = up.At(row, at);
      silu_gradient.Set(row, at, Map(std::multiplies<>(), dy, u));
      up_gradient.Set(row, at, Map(std::multiplies<>(), dy, s));
    });
  }
};

template <class C>
struct SiluBackwardRow {
  std::int64_t width;
  InputRows<Input<C>> silu_gradient, gate;
  OutputRows<Output<C>> gate_gradient;
  __host__ __device__ void operator()(const Team& team, std::int64_t row) const {
    team.Each(0, width, [&](auto at) {
      const auto slope = [](C ds, C x) { return ds * SiluSlope(x); };
      gate_gradient.Set(row, at, Map(slope, silu_gradient.At(row, at), gate.At(row, at)));
    });
  }
};

template <class C>
struct JoinRow {
  std::int64_t width;
  InputRows<Input<C>> gate, up;
  OutputRows<Output<C>> packed_gate, packed_up;
  __host__ __device__ void operator()(const Team& team, std::int64_t row) const {
    team.Each(0, width, [&](auto at) {
      packed_gate.Set(row, at, gate.At(row, at));
      packed_up.Set(row, at, up.At(row, at));
    });
  }
};

}  // namespace

void GluForward(const Glu& op, const ConstTensor& gate, const ConstTensor& up, const Tensor& output,
                const Queue& queue) {
  InArithmeticOf({gate.type, up.type, output.type}, [&]<class C>(C) {
    InViewsOfRows<C>(op, {gate, up, output}, [&]<class Views>(Views) {
      using In = typename Views::In;
      EachRow(queue, op.rows,
              GluRow<C, Views>{
                  op.width, {}, GateOf<In>(op, gate), UpOf<In>(op, up), DenseTo<typename Views::Out>(op, output)});
    });
  });
}

void GluBackward(const Glu& op, const ConstTensor& gate, const ConstTensor& up, const ConstTensor& output_gradient,
                 const Tensor& gate_gradient, const Tensor& up_gradient, const Queue& queue) {
  InArithmeticOf({gate.type, up.type, output_gradient.type}, [&]<class C>(C) {
    InViewsOfRows<C>(op, {gate, up, output_gradient, gate_gradient, up_gradient}, [&]<class Views>(Views) {
      using In = typename Views::In;
      using Out = typename Views::Out;
      EachRow(queue, op.rows,
              GluBackwardRow<C, Views>{op.width,
                                       {},
                                       GateOf<In>(op, gate),
                                       UpOf<In>(op, up),
                                       DenseOf<In>(op, output_gradient),
                                       GateTo<Out>(op, gate_gradient),
                                       UpTo<Out>(op, up_gradient)});
    });
  });
}

void SiluForward(const Glu& op, const ConstTensor& gate, const Tensor& silu, const Queue& queue) {
  InArithmeticOf({gate.type, silu.type}, [&]<class C>(C) {
    EachRow(queue, op.rows, SiluRow<C>{op.width, GateOf<Input<C>>(op, gate), DenseTo<Output<C>>(op, silu)});
  });
}

void ProductForward(const Glu& op, const ConstTensor& silu, const ConstTensor& up, const Tensor& output,
                    const Queue& queue) {
  InArithmeticOf({silu.type, up.type, output.type}, [&]<class C>(C) {
    EachRow(
        queue, op.rows,
        ProductRow<C>{op.width, DenseOf<Input<C>>(op, silu), UpOf<Input<C>>(op, up), DenseTo<Output<C>>(op, output)});
  });
}

void ProductBackward(const Glu& op, const ConstTensor& output_gradient, const ConstTensor& silu, const ConstTensor& up,
                     const Tensor& silu_gradient, const Tensor& up_gradient, const Queue& queue) {
  InArithmeticOf({output_gradient.type, silu.type, up.type}, [&]<class C>(C) {
    EachRow(queue, op.rows,
            ProductBackwardRow<C>{op.width, DenseOf<Input<C>>(op, output_gradient), DenseOf<Input<C>>(op, silu),
                                  UpOf<Input<C>>(op, up), DenseTo<Output<C>>(op, silu_gradient),
                                  UpTo<Output<C>>(op, up_gradient)});
  });
}

void SiluBackward(const Glu& op, const ConstTensor& silu_gradient, const ConstTensor& gate, const Tensor& gate_gradient,
                  const Queue& queue) {
  InArithmeticOf({silu_gradient.type, gate.type}, [&]<class C>(C) {
    EachRow(queue, op.rows,
            SiluBackwardRow<C>{op.width, DenseOf<Input<C>>(op, silu_gradient), GateOf<Input<C>>(op, gate),
                               GateTo<Output<C>>(op, gate_gradient)});
  });
}

void JoinHalves(const Glu& op, const ConstTensor& gate, const ConstTensor& up, const Tensor& packed,
                const Queue& queue) {
  InArithmeticOf({gate.type, up.type, packed.type}, [&]<class C>(C) {
    EachRow(queue, op.rows,
            JoinRow<C>{op.width, DenseOf<Input<C>>(op, gate), DenseOf<Input<C>>(op, up), GateTo<Output<C>>(op, packed),
                       UpTo<Output<C>>(op, packed)});
  });
}

}  // namespace tidemark::kernels::cuda
