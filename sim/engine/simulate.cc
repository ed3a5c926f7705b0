// SPDX-License-Identifier: Apache-2.0
#include "sim/engine/simulate.h"

#include <algorithm>
#include <deque>
#include <map>
#include <optional>
#include <tuple>

#include "sim/engine/buffer_users.h"
#include "sim/engine/cause.h"
#include "sim/program/frees_in_use.h"
#include "sim/program/residents.h"
#include "sim/program/walk.h"

namespace tidemark {
namespace {

/// Messages under way between roles: when each arrives, oldest first.
class Mail {
 public:
  std::deque<Nanos>& Box(const Channel& channel) { return boxes_[{channel.from_role, channel.to_role, channel.name}]; }

 private:
  std::map<std::tuple<std::int64_t, std::int64_t, std::string>, std::deque<Nanos>> boxes_;
};

/// When what an event stands for is done, and what kind of stream it was recorded on.
struct Recorded {
  Nanos time;
  Cause cause = kHost;
};

class RoleSimulation {
 public:
  RoleSimulation(const Program& program, const Costs& costs, Listener* listener, Mail& mail)
      : program_(program), costs_(costs), listener_(listener) {
    ready_.resize(program.streams.size());
    for (std::uint32_t i = 0; i < program.streams.size(); ++i) {
      if (program.streams[i].kind == StreamKind::compute) {
        compute_ = StreamId{i};
      }
    }
    TIDEMARK_CHECK(compute_.valid());
    events_.resize(program.events.size());
    loop_values_.resize(program.loops.size());
    for (const Channel& channel : program.channels) {
      boxes_.push_back(&mail.Box(channel));
    }
    first_slot_.reserve(program.buffers.size());
    std::uint32_t slots = 0;
    for (const Buffer& buffer : program.buffers) {
      first_slot_.push_back(slots);
      slots += static_cast<std::uint32_t>(buffer.count());
    }
    alive_.resize(slots, false);
    if (listener_ != nullptr && FreesInUse(program)) {
      users_.emplace(program, first_slot_, slots);
    }
    AllocateResidents();
  }

  /// Goes on until the end or until a message is missing. True when something moved.
  bool Run() {
    const std::size_t before = steps_;
    while (Step()) {
      ++steps_;
    }
    return steps_ != before;
  }

  bool finished() const { return at_ == program_.nodes.size() && loops_.empty(); }

  /// When everything this role issued is done, the host included.
  Nanos End() const { return std::max(host_, DeviceEnd()); }

  const MemoryPeak& peak() const { return peak_; }

  /// The compute stream's idle time behind its last kernel belongs to whatever ends the step; of several, to the lowest
  /// cause.
  StepTime Time() const {
    StepTime time = time_;
    time.step = End();
    AddIdle(time, CauseOfEnd(time.step), time.step - ready_[compute_.index]);
    return time;
  }

 private:
  struct Loop {
    std::size_t body, end;
    const Repeat* repeat;
    std::int64_t done;
  };

  static void AddIdle(StepTime& time, Cause cause, Nanos idle) {
    Nanos& part = cause == kCollective ? time.exposed_communication : cause == kPeer ? time.bubble : time.host;
    part += idle;
  }

  Nanos DeviceEnd() const {
    Nanos end;
    for (std::size_t i = 1; i < ready_.size(); ++i) {
      end = std::max(end, ready_[i]);
    }
    return end;
  }

  /// Of what ends then, of several the lowest.
  Cause CauseOfEnd(Nanos end) const {
    Cause last = kHost;
    for (std::size_t i = 1; i < ready_.size(); ++i) {
      if (ready_[i] == end) {
        last = std::min(last, CauseOf(program_.streams[i].kind));
      }
    }
    return last;
  }

  /// The compute stream has nothing to do until `time`.
  void Idle(Cause cause, Nanos time) {
    Nanos& ready = ready_[compute_.index];
    if (time > ready) {
      AddIdle(time_, cause, time - ready);
      ready = time;
    }
  }

  std::int64_t Value(const Index& index) const { return Resolve(index, loop_values_); }

  BufferInstance Instance(const BufferRef& ref) const {
    const Buffer& buffer = program_.buffers[ref.buffer.index];
    const std::int64_t index0 = Value(ref.index[0]);
    const std::int64_t index1 = Value(ref.index[1]);
    TIDEMARK_CHECK(index0 >= 0 && index0 < buffer.extents[0] && index1 >= 0 && index1 < buffer.extents[1]);
    const auto offset = static_cast<std::uint32_t>(index0 * buffer.extents[1] + index1);
    return {ref.buffer, index0, index1, first_slot_[ref.buffer.index] + offset};
  }

  void AllocateResidents() {
    for (const ResidentBuffer& resident : ResidentsOf(program_)) {
      const std::uint32_t id = resident.buffer.index;
      const std::int64_t i = resident.index0 * program_.buffers[id].extents[1] + resident.index1;
      const BufferInstance instance{resident.buffer, resident.index0, resident.index1,
                                    first_slot_[id] + static_cast<std::uint32_t>(i)};
      Count(instance);
      if (listener_ != nullptr) {
        listener_->OnResident(instance);
      }
    }
  }

  /// One more buffer is alive.
  void Count(const BufferInstance& instance) {
    TIDEMARK_CHECK(!alive_[instance.slot]);
    alive_[instance.slot] = true;
    const Buffer& buffer = program_.buffers[instance.buffer.index];
    if (buffer.place == Place::device) {
      live_[buffer.category] += buffer.bytes();
      total_ += buffer.bytes();
      if (total_ > peak_.allocated) {
        peak_ = {total_, live_, phases_.empty() ? Phase::load : phases_.back(), peak_.host};
      }
    } else {
      host_total_ += buffer.bytes();
      peak_.host = std::max(peak_.host, host_total_);
    }
  }

  void Take(const BufferInstance& instance) {
    Count(instance);
    if (listener_ != nullptr) {
      const StreamId stream = program_.buffers[instance.buffer.index].stream;
      listener_->OnAlloc(instance, host_, std::max(host_, ready_[stream.index]));
    }
  }

  void Release(const BufferInstance& instance, bool recorded) {
    TIDEMARK_CHECK(alive_[instance.slot]);
    alive_[instance.slot] = false;
    const Buffer& buffer = program_.buffers[instance.buffer.index];
    if (buffer.place == Place::device) {
      live_[buffer.category] -= buffer.bytes();
      total_ -= buffer.bytes();
    } else {
      host_total_ -= buffer.bytes();
    }
    if (listener_ != nullptr) {
      TellOfUses(instance, recorded);
      listener_->OnFree(instance, host_, std::max(host_, ready_[buffer.stream.index]));
    }
  }

  void TellOfUses(const BufferInstance& instance, bool recorded) {
    Nanos done;
    for (const StreamId user : users_ ? users_->Take(instance.slot) : std::vector<StreamId>()) {
      done = std::max(done, ready_[user.index]);
    }
    if (recorded && done > host_) {
      listener_->OnUsedUntil(instance, done);
    }
  }

  void Slice(StreamId stream, NameId name, Nanos start, Nanos end) {
    ready_[stream.index] = end;
    if (listener_ != nullptr && end > start) {
      listener_->OnSlice(stream, name, start, end);
    }
  }

  /// Starts a message: as soon as it is issued and its stream is free.
  Nanos Issue(StreamId stream) {
    host_ += costs_.host_issue;
    return std::max(host_, ready_[stream.index]);
  }

  Nanos& PartOf(Work work) {
    return work == Work::compute ? time_.compute : work == Work::recompute ? time_.recompute : time_.optimizer;
  }

  /// Device work of known duration; on the compute stream that is part of the step's time. Where streams take turns,
  /// work of another one stands between two of its kernels, when that other one has come to it as well.
  void Run(StreamId stream, NameId name, Nanos& part, Nanos duration) {
    const bool in_turn = costs_.streams_take_turns && stream != compute_;
    if (in_turn) {
      Idle(CauseOf(program_.streams[stream.index].kind), ready_[stream.index]);
    }
    host_ += costs_.host_issue;
    if (stream == compute_ || in_turn) {
      Idle(kHost, host_);
      part += duration;
    }
    const Nanos start = std::max(host_, ready_[in_turn ? compute_.index : stream.index]);
    Slice(stream, name, start, start + duration);
    if (in_turn) {
      ready_[compute_.index] = start + duration;
    }
  }

  /// Nothing is issued: the host does it itself, and goes on behind it.
  void RunOnHost(const Compute& leaf, Nanos duration) {
    const Nanos start = host_;
    host_ += duration;
    if (listener_ != nullptr && duration > Nanos(0)) {
      listener_->OnSlice(leaf.stream, leaf.name, start, host_);
    }
  }

  /// One node. False at the end and where a message has not been sent yet.
  bool Step() {
    while (!loops_.empty() && at_ == loops_.back().end) {
      NextIteration();
    }
    if (at_ == program_.nodes.size()) {
      return false;
    }
    const Node& node = program_.nodes[at_];
    if (const auto* recv = std::get_if<Recv>(&node)) {
      if (boxes_[recv->channel.index]->empty()) {
        return false;
      }
    }
    const std::size_t here = at_++;
    std::visit(
        [&](const auto& leaf) {
          if (users_) {
            ForEachUsed(leaf, [this](const BufferRef& ref, StreamId stream) { users_->Add(Instance(ref), stream); });
          }
          Do(leaf, costs_.device[here]);
        },
        node);
    return true;
  }

  void NextIteration() {
    Loop& loop = loops_.back();
    if (++loop.done == loop.repeat->count) {
      loops_.pop_back();
      return;
    }
    loop_values_[loop.repeat->loop.index] += loop.repeat->step;
    at_ = loop.body;
  }

  void Do(const Alloc& leaf, Nanos) { Take(Instance(leaf.buffer)); }
  void Do(const Free& leaf, Nanos) { Release(Instance(leaf.buffer), leaf.recorded); }
  void Do(const Compute& leaf, Nanos duration) {
    if (program_.streams[leaf.stream.index].kind == StreamKind::host) {
      return RunOnHost(leaf, duration);
    }
    Run(leaf.stream, leaf.name, PartOf(leaf.work), duration);
  }
  void Do(const Scale& leaf, Nanos duration) { Run(leaf.stream, leaf.name, time_.compute, duration); }
  void Do(const Collective& leaf, Nanos duration) {
    Run(leaf.stream, leaf.name, time_.exposed_communication, duration);
  }
  void Do(const Copy& leaf, Nanos duration) { Run(leaf.stream, leaf.name, time_.host, duration); }
  void Do(const Send& leaf, Nanos duration) {
    const Nanos start = Issue(leaf.stream);
    Slice(leaf.stream, leaf.name, start, start + duration);
    boxes_[leaf.channel.index]->push_back(start + duration);
  }
  void Do(const Recv& leaf, Nanos) {
    const Nanos start = Issue(leaf.stream);
    std::deque<Nanos>& box = *boxes_[leaf.channel.index];
    Slice(leaf.stream, leaf.name, start, std::max(start, box.front()));
    box.pop_front();
  }
  void Do(const Record& leaf, Nanos) {
    events_[leaf.event.index] = {ready_[leaf.stream.index], CauseOf(program_.streams[leaf.stream.index].kind)};
  }
  void Do(const Wait& leaf, Nanos) {
    const Recorded event = events_[leaf.event.index];
    if (leaf.stream == compute_) {
      Idle(event.cause, event.time);
    }
    ready_[leaf.stream.index] = std::max(ready_[leaf.stream.index], event.time);
  }
  void Do(const HostSync& leaf, Nanos) {
    const Nanos end = leaf.stream.valid() ? ready_[leaf.stream.index] : DeviceEnd();
    const Cause cause = leaf.stream.valid() ? CauseOf(program_.streams[leaf.stream.index].kind) : CauseOfEnd(end);
    if (end > host_) {
      host_ = end;
      if (cause == kCollective) {  // the compute stream is given nothing meanwhile
        Idle(cause, end);
      }
    }
  }
  void Do(const Begin& leaf, Nanos) {
    phases_.push_back(leaf.phase);
    if (listener_ != nullptr) {
      listener_->OnBegin(leaf, Value(leaf.microbatch), host_);
    }
  }
  void Do(const tidemark::End& leaf, Nanos) {
    phases_.pop_back();
    if (listener_ != nullptr) {
      listener_->OnEnd(leaf.phase, host_);
    }
  }
  void Do(const Repeat& repeat, Nanos) {
    loop_values_[repeat.loop.index] = repeat.from;
    loops_.push_back({at_, at_ + repeat.size, &repeat, 0});
  }

  const Program& program_;
  const Costs& costs_;
  StreamId compute_;  ///< the stream whose time is accounted for
  Listener* listener_;
  std::vector<std::deque<Nanos>*> boxes_;

  std::size_t at_ = 0, steps_ = 0;
  std::vector<Loop> loops_;
  std::vector<std::int64_t> loop_values_;

  Nanos host_;
  std::vector<Nanos> ready_;  ///< per stream: when all that was issued to it is done
  std::vector<Recorded> events_;
  StepTime time_;

  std::vector<std::uint32_t> first_slot_;
  std::vector<bool> alive_;
  std::optional<BufferUsers> users_;  ///< where they are told to a listener
  std::vector<Phase> phases_;
  CategoryBytes live_;
  Bytes total_, host_total_;
  MemoryPeak peak_;
};

}  // namespace

Evaluation Simulate(const StepProgram& step, std::span<const Costs> costs, std::span<Listener* const> listeners) {
  TIDEMARK_CHECK(costs.size() == step.roles.size());
  Mail mail;
  std::vector<RoleSimulation> roles;
  roles.reserve(step.roles.size());
  for (std::size_t i = 0; i < step.roles.size(); ++i) {
    roles.emplace_back(step.roles[i], costs[i], listeners.empty() ? nullptr : listeners[i], mail);
  }
  for (bool moved = true; moved;) {
    moved = false;
    for (RoleSimulation& role : roles) {
      moved |= role.Run();
    }
  }
  Evaluation evaluation;
  std::size_t last = 0;
  for (std::size_t i = 0; i < roles.size(); ++i) {
    TIDEMARK_CHECK(roles[i].finished());
    evaluation.roles.push_back(roles[i].peak());
    last = roles[i].End() > roles[last].End() ? i : last;
  }
  evaluation.time = roles[last].Time();
  evaluation.time.role = static_cast<std::int64_t>(last);
  return evaluation;
}

}  // namespace tidemark
