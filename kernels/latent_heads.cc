// SPDX-License-Identifier: Apache-2.0
#include "kernels/latent_heads.h"

#include <algorithm>

#include "kernels/stretch.h"

namespace tidemark::kernels {

void JoinKeys(const LatentHeads& op, const ConstTensor& projected, const ConstTensor& common, const Tensor& keys) {
  TIDEMARK_CHECK(projected.type.elements == op.projected_elements() && keys.type.elements == op.key_elements());
  TIDEMARK_CHECK(common.type.elements == op.common_elements());
  InArithmeticOf({projected.type, common.type}, [&]<class C>(C) {
    const std::int64_t from_width = op.own + op.values, to_width = op.own + op.shared;
    Reader<C> heads(projected, op.own), shared(common, op.shared);
    Writer<C> to(keys, to_width);
    for (std::int64_t token = 0; token < op.tokens; ++token) {
      const C* of_all = shared.At(token * op.shared, op.shared);
      for (std::int64_t head = token * op.heads; head < (token + 1) * op.heads; ++head) {
        C* key = to.At(head * to_width, to_width);
        std::copy_n(heads.At(head * from_width, op.own), op.own, key);
        std::copy_n(of_all, op.shared, key + op.own);
        to.Done(head * to_width, to_width);
      }
    }
  });
}

void CopyValues(const LatentHeads& op, const ConstTensor& projected, const Tensor& values) {
  TIDEMARK_CHECK(projected.type.elements == op.projected_elements() && values.type.elements == op.value_elements());
  InArithmeticOf({projected.type, values.type}, [&]<class C>(C) {
    Reader<C> from(projected, op.values);
    Writer<C> to(values, op.values);
    for (std::int64_t head = 0; head < op.tokens * op.heads; ++head) {
      const std::int64_t begin = head * op.values;
      std::copy_n(from.At(head * (op.own + op.values) + op.own, op.values), op.values, to.At(begin, op.values));
      to.Done(begin, op.values);
    }
  });
}

void SplitKeyGradients(const LatentHeads& op, const ConstTensor& key_gradient, const ConstTensor& value_gradient,
                       const Tensor& projected_gradient, const Tensor& common_gradient) {
  TIDEMARK_CHECK(key_gradient.type.elements == op.key_elements());
  TIDEMARK_CHECK(value_gradient.type.elements == op.value_elements());
  TIDEMARK_CHECK(projected_gradient.type.elements == op.projected_elements());
  TIDEMARK_CHECK(common_gradient.type.elements == op.common_elements());
  InArithmeticOf({key_gradient.type, value_gradient.type}, [&]<class C>(C) {
    const std::int64_t key_width = op.own + op.shared, width = op.own + op.values;
    Reader<C> keys(key_gradient, key_width), values(value_gradient, op.values);
    Writer<C> projected(projected_gradient, width), common(common_gradient, op.shared);
    for (std::int64_t token = 0; token < op.tokens; ++token) {
      C* sum = common.At(token * op.shared, op.shared);
      std::fill_n(sum, op.shared, C(0));
      for (std::int64_t head = token * op.heads; head < (token + 1) * op.heads; ++head) {
        const C* key = keys.At(head * key_width, key_width);
        C* to = projected.At(head * width, width);
        std::copy_n(key, op.own, to);
        std::copy_n(values.At(head * op.values, op.values), op.values, to + op.own);
        projected.Done(head * width, width);
        Each(op.shared, [sum, of_all = key + op.own](std::int64_t i) { sum[i] += of_all[i]; });
      }
      common.Done(token * op.shared, op.shared);
    }
  });
}

}  // namespace tidemark::kernels
