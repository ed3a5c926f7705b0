// SPDX-License-Identifier: Apache-2.0
#include <span>
#include <vector>

#include "kernels/linear_cuda.h"
#include "models/job/validate.h"
#include "profiler/execute/row_operands.h"

namespace tidemark {
namespace {

class LinearBinder : RowOperands {
 public:
  explicit LinearBinder(const RowOperands& operands) : RowOperands(operands) {}

  Result<Operation> Product(std::int64_t multiplied) const {
    if (row_.name.ends_with(".forward") || row_.name.ends_with(".forward_own_rows")) {
      return LinearForward(multiplied);
    }
    if (row_.name.ends_with(".input_gradient")) {
      return LinearInputGradient(multiplied);
    }
    return row_.name.ends_with(".weight_gradient") ? LinearWeightGradient() : NotExecuted(c_.name);
  }

  Result<Operation> Bias(bool forward) const {
    const Parameter& bias = forward ? Weight(0) : Gradient(0);
    kernels::Linear linear{.rows = Elements(Reads(0)) / bias.elements, .in = 0, .out = bias.elements};
    const std::vector<ConstTensor> reads = Reads(0);
    if (forward) {
      const ConstTensor weight = WeightRead(0);
      return Operation{{reads.front().type}, [=](Writes writes, const Queue& queue) {
                         on::AddBias(queue, linear, reads.front(), weight, writes[0]);
                       }};
    }
    linear.accumulate = c_.Adds(0);
    return Operation{{LinearBiasGradientOutput(linear, GradientType(0))}, [=](Writes writes, const Queue& queue) {
                       on::LinearBiasGradient(queue, linear, reads, writes[0]);
                     }};
  }

 private:
  static kernels::Linear LinearOf(const Parameter& weight) {
    return {.rows = 0, .in = weight.elements / weight.rows, .out = weight.rows};
  }

  /// Outputs of a packed projection: queries, then keys and values of equal size; or what these are made from, and what
  /// keys share (models/network/latent_projections.h).
  std::vector<std::int64_t> Parts(std::int64_t out) const {
    if (c_.writes.size() == 1) {
      return {out};
    }
    if (decoder_.IsLatent()) {
      return {decoder_.latent.kv_lora_rank, decoder_.latent.rope_head_size};
    }
    const std::int64_t queries = shape_.heads * shape_.head_size;
    return {queries, (out - queries) / 2, (out - queries) / 2};
  }

  /// Rows that a product multiplies, where they lie in what it reads and in what it writes.
  struct Rows {
    std::int64_t from = 0, to = 0, count = 0;
  };
  struct Multiplied {
    std::vector<Rows> rows;
    std::int64_t written = 0;  ///< rows of what is written
  };

  /// Of a product that reads `read` rows and multiplies `multiplied`. Where rows are gathered beside a product
  /// (Partition::LinearOrder::own_rows_first), that one has this rank's rows only, and writes them where they belong;
  /// the next one has all rows and multiplies the others. A weight that each rank has all of is multiplied with own
  /// rows alone.
  Multiplied RowsOf(std::int64_t read, std::int64_t multiplied) const {
    const bool is_divided = Weight(0).elements < Weight(0).elements_full;
    const std::int64_t own = shape_.tokens() / c_.model.place().size, before = c_.model.place().rank * own;
    if (is_divided && c_.job.layout.sp && PartitionOf(c_.job).linear_order == Partition::LinearOrder::own_rows_first) {
      if (read == own) {
        return {{{0, before, own}}, shape_.tokens()};
      }
      if (multiplied < read) {
        Multiplied others{{}, read};
        for (const Rows& some : {Rows{0, 0, before}, Rows{before + own, before + own, read - before - own}}) {
          if (some.count > 0) {
            others.rows.push_back(some);
          }
        }
        return others;
      }
    }
    return {{{0, 0, read}}, read};
  }

  static std::vector<ConstTensor> Slices(const std::vector<ConstTensor>& all, std::int64_t rows, const Rows& some) {
    std::vector<ConstTensor> slices;
    for (const ConstTensor& tensor : all) {
      const std::int64_t width = tensor.type.elements / rows;
      slices.push_back(kernels::Slice(tensor, some.from * width, some.count * width));
    }
    return slices;
  }

  Result<Operation> LinearForward(std::int64_t multiplied) const {
    kernels::Linear linear = LinearOf(Weight(0));
    const ConstTensor input = c_.Read(0), weight = WeightRead(0);
    const std::optional<ConstTensor> bias = BiasRead();
    const Multiplied product = RowsOf(input.type.elements / linear.in, multiplied);
    linear.rows = product.written;
    Operation operation;
    for (const std::int64_t part : Parts(linear.out)) {
      operation.outputs.push_back(LinearOutput(linear, input.type.dtype, part));
    }
    operation.run = [=](Writes writes, const Queue& queue) {
      for (const Rows& some : product.rows) {
        kernels::Linear op = linear;
        op.rows = some.count;
        std::vector<kernels::Tensor> outputs;
        for (const kernels::Tensor& write : writes) {
          const std::int64_t width = write.type.elements / product.written;
          outputs.push_back(kernels::Slice(write, some.to * width, some.count * width));
        }
        on::LinearForward(queue, op, kernels::Slice(input, some.from * op.in, some.count * op.in), weight, bias,
                          outputs);
      }
    };
    return operation;
  }

  Result<Operation> LinearInputGradient(std::int64_t multiplied) const {
    kernels::Linear linear = LinearOf(Weight(0));
    const std::vector<ConstTensor> gradients = Reads(0);
    const ConstTensor weight = WeightRead(0);
    const std::int64_t read = Elements(gradients) / linear.out;
    const Multiplied product = RowsOf(read, multiplied);
    linear.rows = product.written;
    return Operation{{LinearInputGradientOutput(linear, gradients.front().type.dtype)},
                     [=](Writes writes, const Queue& queue) {
                       for (const Rows& some : product.rows) {
                         kernels::Linear op = linear;
                         op.rows = some.count;
                         const kernels::Tensor to = kernels::Slice(writes[0], some.to * op.in, some.count * op.in);
                         on::LinearInputGradient(queue, op, Slices(gradients, read, some), weight, to);
                       }
                     }};
  }

  Result<Operation> LinearWeightGradient() const {
    kernels::Linear linear = LinearOf(Gradient(0));
    const ConstTensor input = c_.Read(0);
    const std::vector<ConstTensor> gradients = Reads(1);
    linear.rows = input.type.elements / linear.in;
    linear.accumulate = c_.Adds(0);
    return Operation{{LinearWeightGradientOutput(linear, GradientType(0))}, [=](Writes writes, const Queue& queue) {
                       on::LinearWeightGradient(queue, linear, input, gradients, writes[0]);
                     }};
  }
};

}  // namespace

Result<Operation> BindLinear(const RowOperands& operands, const Gemm& product) {
  return LinearBinder(operands).Product(product.m);
}

Result<Operation> BindBias(const RowOperands& operands, bool forward) { return LinearBinder(operands).Bias(forward); }

}  // namespace tidemark
