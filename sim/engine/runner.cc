// SPDX-License-Identifier: Apache-2.0
#include "sim/engine/runner.h"

namespace tidemark {

void Runner::Release() {
  Loop& loop = place_.loops.back();
  if (loop.left == 0) {
    place_.at = loop.end;
    place_.loops.pop_back();
  } else {
    --loop.left;
    place_.at = loop.body;
  }
  place_.state = State::ready;
}

bool Runner::Advance(RegimeScratch& scratch) {
  bool moved = false;
  const std::vector<Op>& ops = clock_.program().ops;
  while (place_.state == State::ready || place_.state == State::blocked) {
    if (!place_.loops.empty() && place_.at == place_.loops.back().end) {
      place_.state = State::boundary;
    } else if (place_.at == ops.size()) {
      place_.state = State::finished;
    } else if (!One(ops[place_.at], scratch)) {
      return moved;
    }
    moved = true;
  }
  return moved;
}

bool Runner::One(const Op& op, RegimeScratch& scratch) {
  std::size_t& at = place_.at;
  if (op.code == Op::Code::recv) {
    Mailbox& box = *boxes_[op.other];
    if (box.empty()) {
      place_.state = State::blocked;
      return false;
    }
    clock_.Recv(op, box.front());
    box.erase(box.begin());
  } else if (op.code == Op::Code::send) {
    boxes_[op.other]->push_back(clock_.Send(op));
  } else if (op.code == Op::Code::repeat && op.joint) {
    place_.loops.push_back({at + 1, at + 1 + op.other, op.amount});
    at = place_.loops.back().end;
    place_.state = State::ready;
    return true;
  } else if (op.code == Op::Code::kernels) {
    at += clock_.Kernels(op) ? op.other : 0;
  } else if (op.code == Op::Code::repeat) {
    clock_.Run(at, at + 1 + op.other, scratch);
    at += op.other;
  } else {
    clock_.Do(op);
  }
  ++at;
  place_.state = State::ready;
  return true;
}

}  // namespace tidemark
