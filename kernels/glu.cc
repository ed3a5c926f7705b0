// SPDX-License-Identifier: Apache-2.0
#include "kernels/glu.h"

#include "kernels/exponential.h"
#include "kernels/glu_halves.h"
#include "kernels/pointwise.h"
#include "kernels/stretch.h"

namespace tidemark::kernels {
namespace {

void CheckDense(const Glu& op, const TensorType& type) { TIDEMARK_CHECK(type.elements == op.rows * op.width); }

template <class C>
C SiluSlope(C x, C sigmoid) {
  return sigmoid * (C(1) + x * (C(1) - sigmoid));
}

template <class C>
void Backward(const Glu& op, const ConstTensor& gate, const ConstTensor& up, const ConstTensor& output_gradient,
              const Tensor& gate_gradient, const Tensor& up_gradient) {
  const Half gate_at = Gate(op, gate.type), up_at = Up(op, up.type);
  const Half d_gate_at = Gate(op, gate_gradient.type), d_up_at = Up(op, up_gradient.type);
  Reader<C> gates(gate, op.width), ups(up, op.width), gradients(output_gradient, op.width);
  Writer<C> d_gates(gate_gradient, op.width), d_ups(up_gradient, op.width);
  for (std::int64_t row = 0; row < op.rows; ++row) {
    Each(op.width, [x = gates.At(gate_at(row), op.width), u = ups.At(up_at(row), op.width),
                    dy = gradients.At(row * op.width, op.width), dx = d_gates.At(d_gate_at(row), op.width),
                    du = d_ups.At(d_up_at(row), op.width)](std::int64_t i) {
      const C s = Sigmoid(x[i]);
      const C d_silu = dy[i] * u[i];
      du[i] = dy[i] * x[i] * s;
      dx[i] = d_silu * SiluSlope(x[i], s);
    });
    d_gates.Done(d_gate_at(row), op.width);
    d_ups.Done(d_up_at(row), op.width);
  }
}

}  // namespace

TensorType GluOutput(const Glu& op, DType dtype) { return {dtype, op.rows * op.width}; }

void GluForward(const Glu& op, const ConstTensor& gate, const ConstTensor& up, const Tensor& output) {
  CheckDense(op, output.type);
  InArithmeticOf({gate.type, up.type, output.type}, [&]<class C>(C) {
    const Half gate_at = Gate(op, gate.type), up_at = Up(op, up.type);
    Reader<C> gates(gate, op.width), ups(up, op.width);
    Writer<C> outputs(output, op.width);
    for (std::int64_t row = 0; row < op.rows; ++row) {
      Each(op.width,
           [x = gates.At(gate_at(row), op.width), u = ups.At(up_at(row), op.width),
            y = outputs.At(row * op.width, op.width)](std::int64_t i) { y[i] = x[i] * Sigmoid(x[i]) * u[i]; });
      outputs.Done(row * op.width, op.width);
    }
  });
}

void GluBackward(const Glu& op, const ConstTensor& gate, const ConstTensor& up, const ConstTensor& output_gradient,
                 const Tensor& gate_gradient, const Tensor& up_gradient) {
  CheckDense(op, output_gradient.type);
  InArithmeticOf({gate.type, up.type, output_gradient.type},
                 [&]<class C>(C) { Backward<C>(op, gate, up, output_gradient, gate_gradient, up_gradient); });
}

void SiluForward(const Glu& op, const ConstTensor& gate, const Tensor& silu) {
  CheckDense(op, silu.type);
  InArithmeticOf({gate.type, silu.type}, [&]<class C>(C) {
    const Half gate_at = Gate(op, gate.type);
    Reader<C> gates(gate, op.width);
    Writer<C> outputs(silu, op.width);
    for (std::int64_t row = 0; row < op.rows; ++row) {
      Each(op.width, [x = gates.At(gate_at(row), op.width), y = outputs.At(row * op.width, op.width)](std::int64_t i) {
        y[i] = x[i] * Sigmoid(x[i]);
      });
      outputs.Done(row * op.width, op.width);
    }
  });
}

void ProductForward(const Glu& op, const ConstTensor& silu, const ConstTensor& up, const Tensor& output) {
  CheckDense(op, silu.type);
  CheckDense(op, output.type);
  InArithmeticOf({silu.type, up.type, output.type}, [&]<class C>(C) {
    const Half up_at = Up(op, up.type);
    Reader<C> silus(silu, op.width), ups(up, op.width);
    Writer<C> outputs(output, op.width);
    for (std::int64_t row = 0; row < op.rows; ++row) {
      Each(op.width, [s = silus.At(row * op.width, op.width), u = ups.At(up_at(row), op.width),
                      y = outputs.At(row * op.width, op.width)](std::int64_t i) { y[i] = s[i] * u[i]; });
      outputs.Done(row * op.width, op.width);
    }
  });
}

void ProductBackward(const Glu& op, const ConstTensor& output_gradient, const ConstTensor& silu, const ConstTensor& up,
                     const Tensor& silu_gradient, const Tensor& up_gradient) {
  CheckDense(op, output_gradient.type);
  CheckDense(op, silu.type);
  CheckDense(op, silu_gradient.type);
  InArithmeticOf({output_gradient.type, silu.type, up.type}, [&]<class C>(C) {
    const Half up_at = Up(op, up.type), d_up_at = Up(op, up_gradient.type);
    Reader<C> gradients(output_gradient, op.width), silus(silu, op.width), ups(up, op.width);
    Writer<C> d_silus(silu_gradient, op.width), d_ups(up_gradient, op.width);
    for (std::int64_t row = 0; row < op.rows; ++row) {
      const std::int64_t begin = row * op.width;
      Each(op.width,
           [dy = gradients.At(begin, op.width), s = silus.At(begin, op.width), u = ups.At(up_at(row), op.width),
            ds = d_silus.At(begin, op.width), du = d_ups.At(d_up_at(row), op.width)](std::int64_t i) {
             ds[i] = dy[i] * u[i];
             du[i] = dy[i] * s[i];
           });
      d_silus.Done(begin, op.width);
      d_ups.Done(d_up_at(row), op.width);
    }
  });
}

void SiluBackward(const Glu& op, const ConstTensor& silu_gradient, const ConstTensor& gate,
                  const Tensor& gate_gradient) {
  CheckDense(op, silu_gradient.type);
  InArithmeticOf({silu_gradient.type, gate.type}, [&]<class C>(C) {
    const Half gate_at = Gate(op, gate.type), d_gate_at = Gate(op, gate_gradient.type);
    Reader<C> gradients(silu_gradient, op.width), gates(gate, op.width);
    Writer<C> d_gates(gate_gradient, op.width);
    for (std::int64_t row = 0; row < op.rows; ++row) {
      Each(op.width, [dy = gradients.At(row * op.width, op.width), x = gates.At(gate_at(row), op.width),
                      dx = d_gates.At(d_gate_at(row), op.width)](std::int64_t i) {
        dx[i] = dy[i] * SiluSlope(x[i], Sigmoid(x[i]));
      });
      d_gates.Done(d_gate_at(row), op.width);
    }
  });
}

void JoinHalves(const Glu& op, const ConstTensor& gate, const ConstTensor& up, const Tensor& packed) {
  CheckDense(op, gate.type);
  CheckDense(op, up.type);
  const Half gate_at = Gate(op, packed.type), up_at = Up(op, packed.type);
  for (std::int64_t row = 0; row < op.rows; ++row) {
    Copy(Slice(gate, row * op.width, op.width), Slice(packed, gate_at(row), op.width));
    Copy(Slice(up, row * op.width, op.width), Slice(packed, up_at(row), op.width));
  }
}

}  // namespace tidemark::kernels
