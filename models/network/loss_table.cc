// SPDX-License-Identifier: Apache-2.0
#include "models/network/loss_table.h"

#include <algorithm>
#include <utility>

namespace tidemark {

LossTable::LossTable(DecoderParts& parts, Part part, TensorId logits, TensorId labels, std::vector<Action>& forward,
                     std::vector<Action>& backward)
    : parts_(parts),
      part_(std::move(part)),
      forward_(forward),
      backward_(backward),
      logits_(logits),
      labels_(labels),
      wide_(logits) {}

void LossTable::Forward() {
  if (SizeOf(b().compute()) < SizeOf(DType::fp32) && kind() != Loss::low_precision) {
    wide_ = AddWide("logits_fp32");
    Pass(false, "logits.upcast", {logits_}, {wide_});
  }
  row_max_ = AddRows("row_max", part_.tokens);
  row_sum_ = AddRows("row_sum", part_.tokens);
  target_ = AddRows("target_logit", part_.tokens);
  if (SavesSoftmax()) {
    SoftmaxForward();
  } else {
    LogSoftmaxForward();
  }
}

TensorId LossTable::Backward() {
  const TensorId wide = SavesSoftmax() ? SoftmaxBackward() : LogSoftmaxBackward();
  if (wide_ == logits_) {
    return wide;
  }
  const TensorId d_logits = b().AddTensor("d_logits" + part_.suffix, b().tensor(logits_).elements, Category::logits,
                                          parts_.partition().compute);
  Pass(true, "logits.downcast", {wide}, {d_logits});
  return d_logits;
}

TensorId LossTable::Held() const {
  const bool narrow = kind() == Loss::upcast_returned || kind() == Loss::chunked;
  return narrow ? logits_ : kind() == Loss::upcast_fp32_returned ? wide_ : TensorId();
}

void LossTable::SoftmaxForward() {
  RowMaximum();
  saved_ = kind() == Loss::softmax_in_place ? wide_ : AddWide("softmax");
  Pass(false, "softmax.shift", {wide_, row_max_}, {saved_});
  // Gathers one element a row: the traffic is that of the rows, not of the matrix.
  Pass(false, "softmax.target", {labels_}, {target_}).reads.push_back(saved_);
  Reduce("target_logit.reduce", target_);
  Pass(false, "softmax.exponential", {saved_}, {saved_, row_sum_});
  Reduce("row_sum.reduce", row_sum_);
  // Both forms of the logits die when the function returns, so its last pass counts as touching them.
  Calculate& last = Pass(false, "softmax.normalise", {saved_, row_sum_, target_}, {saved_, AddLoss()});
  for (const TensorId held : {logits_, wide_}) {
    if (held != saved_ && std::ranges::find(last.reads, held) == last.reads.end()) {
      last.reads.push_back(held);
    }
  }
}

TensorId LossTable::SoftmaxBackward() {
  Pass(true, "softmax.backward", {saved_, labels_}, {saved_});
  return saved_;
}

void LossTable::LogSoftmaxForward() {
  RowMaximum();
  Pass(false, "log_softmax.sum", {wide_, row_max_}, {row_sum_});
  Reduce("row_sum.reduce", row_sum_);
  saved_ = AddWide("log_softmax");
  Pass(false, "log_softmax.forward", {wide_, row_max_, row_sum_}, {saved_});
  // Gathers one element a row: the traffic is that of the rows, not of the matrix.
  Calculate& nll = Pass(false, "nll.forward", {labels_}, {target_});
  nll.reads.push_back(saved_);
  Reduce("target_logit.reduce", target_);
  Pass(false, "nll.mean", {target_}, {AddLoss()});
}

TensorId LossTable::LogSoftmaxBackward() {
  const TensorId d_nll = AddWide("d_log_softmax");
  Pass(true, "nll.backward", {labels_}, {d_nll}).reads.push_back(saved_);
  const TensorId d_wide = AddWide("d_logits_fp32");
  Pass(true, "log_softmax.backward", {d_nll, saved_}, {d_wide});
  return d_wide;
}

void LossTable::RowMaximum() {
  Pass(false, "row_max.forward", {wide_}, {row_max_});
  Reduce("row_max.reduce", row_max_, Reduction::max);
}

TensorId LossTable::AddWide(const std::string& name) {
  const bool narrow = SizeOf(b().compute()) < SizeOf(DType::fp32);
  const DType dtype = narrow && kind() != Loss::low_precision ? DType::fp32 : b().compute();
  return b().AddTensor(name + part_.suffix, b().tensor(logits_).elements, Category::logits, dtype);
}

TensorId LossTable::AddRows(const std::string& name, std::int64_t elements) {
  return b().AddTensor(name + part_.suffix, elements, Category::activation, DType::fp32);
}

void LossTable::Reduce(std::string name, TensorId rows, Reduction reduction) {
  if (parts_.shape().tp > 1) {
    b().AddCollective(forward_, CollectiveKind::all_reduce, std::move(name), rows, rows);
    std::get<Communicate>(forward_.back()).reduction = reduction;
  }
}

Calculate& LossTable::Pass(bool backward, std::string name, std::vector<TensorId> reads, std::vector<TensorId> writes) {
  CrossEntropy op;
  op.rows = part_.tokens;
  op.vocabulary = parts_.shape().vocabulary;
  op.bytes_moved = b().BytesOf(reads) + b().BytesOf(writes);
  op.backward = backward;
  return b().Add(backward ? backward_ : forward_, std::move(name), op, std::move(reads), std::move(writes));
}

}  // namespace tidemark
