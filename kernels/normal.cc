// SPDX-License-Identifier: Apache-2.0
#include "kernels/normal.h"

#include "kernels/normal_number.cuh"
#include "kernels/stretch.h"

namespace tidemark::kernels {

void DrawNormal(const Normal& op, const Tensor& to) {
  InArithmeticOf({to.type}, [&]<class C>(C) {
    Writer<C> writer(to, kStretch);
    EachStretch(to.type.elements, [&](std::int64_t begin, std::int64_t count) {
      C* const numbers = writer.At(begin, count);
      for (std::int64_t i = 0; i < count; ++i) {
        numbers[i] = static_cast<C>(NormalNumber(op, begin + i));
      }
      writer.Done(begin, count);
    });
  });
}

}  // namespace tidemark::kernels
