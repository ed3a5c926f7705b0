// SPDX-License-Identifier: Apache-2.0
#include "models/job/fields.h"

namespace tidemark {

std::vector<Field<Job>> LossFields() {
  using J = Job;
  using Loss = Partition::Loss;
  return {FieldAt<J>(
              "loss", [](J & j) -> auto& { return j.axes.loss; },
              Choice<Loss>{{{"upcast-logits", Loss::upcast_logits},
                            {"upcast-returned", Loss::upcast_returned},
                            {"upcast-fp32-returned", Loss::upcast_fp32_returned},
                            {"low-precision", Loss::low_precision},
                            {"softmax-saving", Loss::softmax_saving},
                            {"chunked", Loss::chunked},
                            {"fused", Loss::fused}}}),
          FieldAt<J>(
              "loss_chunk_tokens", [](J & j) -> auto& { return j.axes.loss_chunk_tokens; }, WholeNumber{0, 1 << 24})};
}

}  // namespace tidemark
