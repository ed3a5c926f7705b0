// SPDX-License-Identifier: Apache-2.0
#include "traces/formats/torch_trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <tuple>
#include <utility>
#include <vector>

#include "base/text.h"
#include "traces/formats/torch_history.h"
#include "traces/formats/torch_scopes.h"

namespace tidemark {
namespace {

constexpr std::int64_t kLongestUs = std::int64_t{1} << 52;  // 142 years

/// One device's history as a trace.
class TraceMaker {
 public:
  TraceMaker(const TorchSnapshot& snapshot, std::size_t device, const TorchHistory& history)
      : snapshot_(snapshot), history_(history), scopes_(snapshot, device, history.first_us, trace_) {
    const bool no_times = !snapshot.has_times && !snapshot.entries.empty();  // each entry counts one microsecond
    trace_.origin = no_times ? "torch snapshot without times" : "torch snapshot";
    trace_.role = fmt::format("cuda:{}", device);
    trace_.allocator = snapshot.settings;
    if (device < snapshot.identities.size()) {
      trace_.role = snapshot.identities[device].role;
      trace_.origin = snapshot.identities[device].origin;
      trace_.allocator = snapshot.identities[device].allocator;
    }
  }

  Result<Trace> Make() {
    if (Distance(history_.first_us, history_.last_us) > kLongestUs) {
      return BadInput("the entries of the snapshot lie more than a century apart");
    }
    members_.resize(history_.lives.size());
    TorchMoment birth;
    birth.time_us = birth.ready_us = history_.first_us;
    birth.n_reserved = history_.n_reserved_before;
    for (const std::uint32_t life : LivesFromBefore()) {
      birth.life = life;
      TIDEMARK_TRY(Add(birth));
    }
    const std::size_t before = trace_.memory.size();
    for (const TorchMoment& moment : history_.moments) {
      scopes_.Advance(moment.time_us, trace_.memory.size());
      TIDEMARK_TRY(Add(moment));
    }
    scopes_.Advance(history_.last_us, trace_.memory.size());
    scopes_.End(trace_.memory.size());
    for (const std::size_t moments : history_.out_of_memory) {
      if (before + moments > 0) {
        trace_.marks.push_back({kOutOfMemory, before + moments});
      }
    }
    return std::move(trace_);
  }

  bool too_many_scopes() const { return scopes_.too_many(); }

 private:
  struct Member {
    TensorNameId tensor;
    std::int32_t index = 0;
  };

  /// At most `b` and 2^63 - 1.
  static std::int64_t Distance(std::int64_t a, std::int64_t b) {
    std::int64_t distance = 0;
    return __builtin_sub_overflow(b, a, &distance) ? INT64_MAX : distance;
  }

  /// By address: which came first is not known.
  std::vector<std::uint32_t> LivesFromBefore() const {
    std::vector<std::uint32_t> lives;
    for (std::uint32_t life = 0; life < history_.lives.size(); ++life) {
      if (history_.lives[life].before) {
        lives.push_back(life);
      }
    }
    std::stable_sort(lives.begin(), lives.end(), [&](std::uint32_t a, std::uint32_t b) {
      return history_.lives[a].address < history_.lives[b].address;
    });
    return lives;
  }

  Nanos Since(std::int64_t time_us) const { return Nanos((time_us - history_.first_us) * 1000); }

  Status Add(const TorchMoment& moment) {
    const TorchLife& life = history_.lives[moment.life];
    Member& member = members_[moment.life];
    if (moment.alloc) {
      member = NewMember(life);
    }
    requested_ += moment.alloc ? life.n_requested : -life.n_requested;
    allocated_ += moment.alloc ? life.n_block : -life.n_block;
    if (requested_ > kMostTorchBytes || allocated_ > kMostTorchBytes) {
      return BadInput("more than 2^60 bytes are alive in the snapshot");
    }
    MemoryEvent event;
    event.alloc = moment.alloc;
    event.tensor = member.tensor;
    event.index0 = member.index;
    event.issue = Since(moment.time_us);
    event.ready = Since(moment.ready_us);
    event.waits = moment.waits;
    event.address = life.address;
    event.span = scopes_.innermost();
    event.stream = StreamOf(life.stream);
    // Rounding is a guess where a block was gone by the end; what is reserved is known.
    event.allocator_bytes =
        Bytes(moment.n_reserved > 0 ? std::min(allocated_, std::max(moment.n_reserved, requested_)) : allocated_);
    event.reserved_bytes = std::max(Bytes(moment.n_reserved), event.allocator_bytes);
    trace_.memory.push_back(event);
    return Done{};
  }

  Member NewMember(const TorchLife& life) {
    const std::string& place = snapshot_.places[life.place];
    const bool lost = life.before && place.empty();
    const auto [found, is_new] = families_.try_emplace({life.place, life.n_requested, life.category, life.dtype, lost},
                                                       static_cast<std::uint32_t>(trace_.tensors.size()));
    if (is_new) {
      const std::string unknown = lost ? "before the recording" : "unknown place";
      trace_.tensors.push_back({place.empty() ? unknown : place, life.category, life.dtype, Bytes(life.n_requested)});
      born_.push_back(0);
    }
    return {TensorNameId{found->second}, born_[found->second]++};
  }

  /// Streams are handles; the default one is 0.
  std::uint16_t StreamOf(std::int64_t handle) {
    const auto found = streams_.find(handle);
    if (found != streams_.end()) {
      return found->second;
    }
    if (trace_.streams.size() == kNoStream) {
      return kNoStream;
    }
    const auto index = static_cast<std::uint16_t>(trace_.streams.size());
    const std::int64_t number = handle == 0 ? 0 : ++other_streams_;
    trace_.streams.push_back({fmt::format("stream {}", number), "compute"});
    return streams_[handle] = index;
  }

  const TorchSnapshot& snapshot_;
  const TorchHistory& history_;
  Trace trace_;
  TorchScopes scopes_;
  std::map<std::tuple<std::uint32_t, std::int64_t, Category, DType, bool>, std::uint32_t> families_;
  std::vector<std::int32_t> born_;  // members so far, by family
  std::vector<Member> members_;     // by life
  std::map<std::int64_t, std::uint16_t> streams_;
  std::int64_t other_streams_ = 0;
  std::int64_t requested_ = 0, allocated_ = 0;
};

std::vector<std::size_t> DevicesOf(const TorchSnapshot& snapshot) {
  constexpr std::int64_t kMostDevices = 128;  // of PyTorch: a device index has 8 bits
  std::vector<std::size_t> devices;
  for (std::size_t i = 0; i < snapshot.traces.size(); ++i) {
    if (!snapshot.traces[i].empty()) {
      devices.push_back(i);
    }
  }
  for (const TorchSegment& segment : snapshot.segments) {
    if (segment.device >= 0 && segment.device < kMostDevices) {
      devices.push_back(static_cast<std::size_t>(segment.device));
    }
  }
  std::sort(devices.begin(), devices.end());
  devices.erase(std::unique(devices.begin(), devices.end()), devices.end());
  return devices;
}

/// What the file does not have, in sentences.
std::string NoteOf(const TorchSnapshot& snapshot, bool too_many_scopes) {
  std::vector<std::string> facts;
  if (snapshot.overflowed) {
    facts.emplace_back("the recording's ring buffer was full: entries before its first one are lost");
  }
  if (too_many_scopes) {
    facts.emplace_back("it has more scopes than a trace can name: the later ones are left out");
  }
  for (const auto& [action, entries] : snapshot.unknown_actions) {
    facts.push_back(fmt::format("entries of the unknown action '{}' were passed over: {}", action, Grouped(entries)));
  }
  return fmt::format("{}", fmt::join(facts, "; "));
}

}  // namespace

Result<TraceFile> TracesOf(const TorchSnapshot& snapshot) {
  TraceFile file;
  bool too_many_scopes = false;
  for (const std::size_t device : DevicesOf(snapshot)) {
    TIDEMARK_ASSIGN(const TorchHistory history, FollowDevice(snapshot, device));
    TraceMaker maker(snapshot, device, history);
    TIDEMARK_ASSIGN(Trace trace, maker.Make());
    if (const std::string fault = Verify(trace); !fault.empty()) {
      return BadInput(fmt::format("a sound snapshot was expected, but {}", fault));
    }
    too_many_scopes = too_many_scopes || maker.too_many_scopes();
    file.traces.push_back(std::move(trace));
  }
  if (file.traces.empty()) {
    return BadInput("the snapshot is empty: no device has a segment or an entry",
                    "call torch.cuda.memory._record_memory_history() before the work that is to be seen");
  }
  file.note = NoteOf(snapshot, too_many_scopes);
  return file;
}

}  // namespace tidemark
