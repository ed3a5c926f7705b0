// SPDX-License-Identifier: Apache-2.0
#include <string>

#include "profiler/execute/executor.h"

// When a stream was busy: by the host's clock where work is done when it is given, else by marks around it.

namespace tidemark {

Executor::Started Executor::StartOn(StreamId stream) {
  return {recorder_.Now(), recorder_.open_span(), device_.is_synchronous() ? 0 : device_.MarkIn(stream.index)};
}

void Executor::EndOn(StreamId id, const std::string& name, const Started& started) {
  if (!device_.is_synchronous()) {
    timed_.push_back({id, name, started.span, started.mark, device_.MarkIn(id.index)});
    return;
  }
  const Stream& stream = program_->streams[id.index];
  recorder_.Busy(stream.name, Name(stream.kind), name, started.at, recorder_.Now(), started.span);
}

/// The device has come to an end.
void Executor::TakeTimes() {
  for (const Timed& timed : timed_) {
    const Stream& stream = program_->streams[timed.stream.index];
    const Nanos start = step_start_ + device_.Between(step_mark_, timed.start);
    recorder_.Busy(stream.name, Name(stream.kind), timed.name, start, start + device_.Between(timed.start, timed.end),
                   timed.span);
  }
  timed_.clear();
  device_.DropMarks();
}

}  // namespace tidemark
