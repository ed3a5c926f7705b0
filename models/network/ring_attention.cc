// SPDX-License-Identifier: Apache-2.0
#include "models/network/ring_attention.h"

#include <fmt/format.h>

#include <string>
#include <utility>

namespace tidemark {

Attention RingAttention::Step(Attention op, std::int64_t step) {
  op.ring_step = step;
  return op;
}

TensorId RingAttention::AddLse(std::string name) {
  return b().AddTensor(std::move(name), parts_.shape().tokens * parts_.shape().heads, Category::activation,
                       DType::fp32);
}

void RingAttention::Forward(const Attention& op, TensorId q, TensorId k, TensorId v, TensorId output) {
  auto& forward = b().forward();
  q_ = q;
  // Sequences lie side by side in the residual stream, and one behind the other in attention.
  const bool copies = parts_.shape().batch > 1;
  output_ = copies ? b().AddTensor("sequences_out", Outputs()) : output;
  std::vector<TensorId> kvs, outputs, lses;
  const auto arrive = [&] {
    return kvs.emplace_back(b().AddTensor(fmt::format("{}_ring_kv", kvs.size()), Keys() + Values()));
  };
  b().AddPointwise(forward, "attention.stack", {k, v}, {arrive()}, 0);
  for (std::int64_t step = 0; step < ranks(); ++step) {
    kv_ = kvs.back();
    const std::string name = fmt::format("attention.shift_{}", step);
    const bool goes_on = step + 1 < ranks();
    if (goes_on) {
      b().AddShift(forward, CollectiveKind::shift_up, name, {kv_}, {arrive()});
    }
    outputs.push_back(b().AddTensor(fmt::format("{}_ring_out", step), Outputs()));
    lses.push_back(AddLse(fmt::format("{}_ring_lse", step)));
    b().Add(forward, fmt::format("attention.forward_{}", step), Step(op, step), {q, kv_},
            {outputs.back(), lses.back()});
    if (goes_on) {
      b().AwaitShift(forward, name, {kv_}, {kvs.back()});
    }
  }
  Merge(outputs, lses);
  std::vector<TensorId> named = std::move(kvs);
  named.insert(named.end(), outputs.begin(), outputs.end());
  named.insert(named.end(), {k, v});  // by whoever called it
  forward.emplace_back(Hold{"attention.return", std::move(named), {}});
  if (copies) {
    b().AddPointwise(forward, "attention.side_by_side", {output_}, {output}, 0);
  }
}

void RingAttention::Merge(const std::vector<TensorId>& outputs, const std::vector<TensorId>& lses) {
  auto& forward = b().forward();
  lse_ = AddLse("lse");
  b().AddPointwise(forward, "attention.merge_0", {outputs.front(), lses.front()}, {output_, lse_}, 0);
  for (std::size_t step = 1; step < outputs.size(); ++step) {
    b().AddPointwise(forward, fmt::format("attention.merge_{}", step), {outputs[step], lses[step], output_, lse_},
                     {output_, lse_}, 4);
  }
}

void RingAttention::Backward(const Attention& op, TensorId d_output, TensorId dq, TensorId dk, TensorId dv) {
  auto& backward = b().backward();
  Pair pairs[2];
  for (const std::size_t i : {0U, 1U}) {
    pairs[i] = {b().AddTensor(fmt::format("{}_back_kv", i), Keys() + Values()),
                b().AddTensor(fmt::format("{}_back_d_kv", i), Keys() + Values())};
  }
  backward.emplace_back(Hold{"attention.begin", {}, {dq, pairs[0].d_kv, pairs[1].kv, pairs[1].d_kv}});
  b().AddPointwise(backward, "attention.kv_back", {kv_}, {pairs[0].kv}, 0);
  for (std::int64_t turn = 0; turn < ranks(); ++turn) {
    StepBackward(op, turn, pairs[turn % 2], pairs[(turn + 1) % 2], d_output, dq);
  }
  backward.emplace_back(Hold{"attention.end", {kv_, pairs[0].kv, pairs[0].d_kv, pairs[1].kv, pairs[1].d_kv}, {}});
  // The gradient of a packed projection is put together from views of the pair that came last, which goes with them.
  const Pair& last = pairs[ranks() % 2];
  b().AddPointwise(backward, "attention.unstack", {last.d_kv}, {dk, dv}, 0);
  backward.emplace_back(Hold{"attention.views", {last.kv}, {}});
}

void RingAttention::StepBackward(const Attention& op, std::int64_t turn, const Pair& here, const Pair& there,
                                 TensorId d_output, TensorId dq) {
  auto& backward = b().backward();
  const std::int64_t step = ranks() - 1 - turn;
  const auto name = [step](const char* what) { return fmt::format("attention.{}_{}", what, step); };
  // The last turn is on the own keys, which nobody waits for; the first has no sums yet.
  std::vector<TensorId> from, to;
  if (step > 0) {
    from.push_back(here.kv);
    to.push_back(there.kv);
  }
  if (turn > 0) {
    from.push_back(here.d_kv);
    to.push_back(there.d_kv);
  }
  b().AddShift(backward, CollectiveKind::shift_down, name("shift_back"), from, to);
  const std::int64_t tokens = parts_.shape().tokens;
  const TensorId dq_step = b().AddTensor(fmt::format("dq_{}", step), Queries());
  const TensorId dk_step = b().AddTensor(fmt::format("dk_{}", step), Keys());
  const TensorId dv_step = b().AddTensor(fmt::format("dv_{}", step), Values());
  const TensorId accumulator =
      b().AddTensor(fmt::format("dq_accumulator_{}", step), Queries(), Category::activation, DType::fp32);
  const TensorId delta =
      b().AddTensor(fmt::format("delta_{}", step), tokens * parts_.shape().heads, Category::activation, DType::fp32);
  b().Add(backward, name("backward"), Step(op, step), {q_, here.kv, output_, lse_, d_output},
          {dq_step, dk_step, dv_step, accumulator, delta});
  b().AwaitShift(backward, name("shift_back"), from, to);
  const bool begins = turn == 0;
  const auto with = [begins](std::vector<TensorId> addends, TensorId sum) {
    if (!begins) {
      addends.push_back(sum);
    }
    return addends;
  };
  b().AddPointwise(backward, name("sum_dq"), with({dq_step}, dq), {dq}, begins ? 0 : 1);
  b().AddPointwise(backward, name("sum_dkv"), with({dk_step, dv_step}, there.d_kv), {there.d_kv}, begins ? 0 : 1);
}

}  // namespace tidemark
