// SPDX-License-Identifier: Apache-2.0
#include "traces/formats/chrome_text.h"

#include <fmt/format.h>

#include <cstdint>
#include <iterator>
#include <map>
#include <set>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "base/category.h"
#include "base/dtype.h"
#include "traces/formats/json_text.h"

namespace tidemark {
namespace {

/// Microseconds with all nanoseconds.
std::string Micros(Nanos nanos) {
  const std::int64_t count = nanos.count(), size = std::abs(count);
  return fmt::format("{}{}.{:03}", count < 0 ? "-" : "", size / 1000, size % 1000);
}

/// One trace, event after event.
class TraceText {
 public:
  TraceText(const Trace& trace, std::size_t number, std::string& out, bool& first)
      : trace_(trace),
        pid_(number),
        out_(out),
        first_(first),
        tells_blocks_(Tells(trace, &MemoryEvent::allocator_bytes)),
        tells_reserved_(Tells(trace, &MemoryEvent::reserved_bytes)) {
    for (const TraceTensor& tensor : trace.tensors) {
      categories_.insert(tensor.category);
    }
    for (const InstantMark& mark : trace.marks) {
      if (mark.name == kOutOfMemory) {
        refused_after_.insert(mark.events);
      }
    }
  }

  void Write() {
    WriteNames();
    WriteSteps();
    WriteSpans();
    WriteMemory();
    WriteSlices();
  }

 private:
  /// The thread of the host: behind the streams.
  std::size_t Host() const { return trace_.streams.size(); }

  void WriteNames() {
    Event(R"({{"ph":"M","name":"process_name","pid":{},"tid":{},"args":{{"name":{},"Origin":{}}}}})", pid_, Host(),
          JsonText(trace_.role.empty() ? "trace" : trace_.role), JsonText(trace_.origin));
    for (std::size_t i = 0; i < trace_.streams.size(); ++i) {
      Meta("thread_name", i, trace_.streams[i].name);
    }
    Meta("thread_name", Host(), "phases");
  }

  void Meta(std::string_view what, std::size_t tid, std::string_view name) {
    Event(R"({{"ph":"M","name":"{}","pid":{},"tid":{},"args":{{"name":{}}}}})", what, pid_, tid, JsonText(name));
  }

  void WriteSteps() {
    for (std::size_t i = 0; i < trace_.steps.size(); ++i) {
      const StepMark& step = trace_.steps[i];
      Annotation(fmt::format("\"ProfilerStep#{}\"", i), step.begin, step.end, "");
    }
  }

  void WriteSpans() {
    for (const Span& span : trace_.spans) {
      std::string name = span.side.empty() ? span.phase : span.phase + " " + span.side;
      if (span.microbatch >= 0) {
        name = fmt::format("microbatch {} {}", span.microbatch, name);
      }
      Annotation(JsonText(name), span.begin, span.end,
                 fmt::format(R"("Phase":{},"Microbatch":{},"Side":{})", JsonText(span.phase), span.microbatch,
                             JsonText(span.side)));
    }
  }

  void Annotation(std::string_view quoted, Nanos begin, Nanos end, std::string_view args) {
    Event(R"({{"ph":"X","cat":"user_annotation","name":{},"pid":{},"tid":{},"ts":{},"dur":{},"args":{{{}}}}})", quoted,
          pid_, Host(), Micros(begin), Micros(end - begin), args);
  }

  void WriteMemory() {
    std::vector<std::string> names;
    for (const TraceTensor& tensor : trace_.tensors) {
      names.push_back(JsonText(tensor.name));
    }
    CategoryBytes alive;
    for (std::size_t i = 0; i < trace_.memory.size(); ++i) {
      const MemoryEvent& event = trace_.memory[i];
      const TraceTensor& tensor = trace_.tensors[event.tensor.index];
      const Bytes change = event.alloc ? tensor.bytes : Bytes(0) - tensor.bytes;
      alive[tensor.category] += change;
      WriteBlock(i, names[event.tensor.index], change, alive.Total());
      WriteRefused(i);
      if (i + 1 == trace_.memory.size() || trace_.memory[i + 1].issue != event.issue) {
        WriteCounters(event.issue, alive);
      }
    }
  }

  void WriteBlock(std::size_t at, std::string_view quoted, Bytes change, Bytes total) {
    const MemoryEvent& event = trace_.memory[at];
    const TraceTensor& tensor = trace_.tensors[event.tensor.index];
    const std::string dtype =
        IsTold(tensor.dtype, tensor.category) ? fmt::format(R"(,"Dtype":"{}")", Name(tensor.dtype)) : std::string();
    Event(R"({{"ph":"i","s":"t","cat":"cpu_instant_event","name":"[memory]","pid":{},"tid":{},"ts":{},)"
          R"("args":{{{},"Addr":{},"Bytes":{},"Total Allocated":{}{},"Ev Idx":{},"Tensor":{},"Category":"{}"{}}}}})",
          pid_, Host(), Micros(event.issue), DeviceText(), AddressOf(event), change.count(), total.count(),
          TotalsText(event), at, quoted, Name(tensor.category), dtype);
  }

  /// Requests that were refused right after an event.
  void WriteRefused(std::size_t at) {
    for (std::size_t left = refused_after_.count(at + 1); left > 0; --left) {
      const MemoryEvent& event = trace_.memory[at];
      Event(R"({{"ph":"i","s":"t","cat":"cpu_instant_event","name":"[OutOfMemory]","pid":{},"tid":{},"ts":{},)"
            R"("args":{{{}{}}}}})",
            pid_, Host(), Micros(event.issue), DeviceText(), TotalsText(event));
    }
  }

  std::string DeviceText() const {
    const bool is_cpu = trace_.role == "cpu";
    return fmt::format(R"("Device Type":{},"Device Id":{})", is_cpu ? 0 : 1, is_cpu ? -1 : static_cast<int>(pid_));
  }

  /// The allocator's totals, as far as the trace tells them.
  std::string TotalsText(const MemoryEvent& event) const {
    std::string text = tells_reserved_ ? fmt::format(R"(,"Total Reserved":{})", event.reserved_bytes.count()) : "";
    text += tells_blocks_ ? fmt::format(R"(,"Allocator":{})", event.allocator_bytes.count()) : "";
    return text;
  }

  /// Readers pair allocations with frees by address: one of its own for each block that is alive.
  std::uint64_t AddressOf(const MemoryEvent& event) {
    const std::tuple member(event.tensor.index, event.index0, event.index1);
    if (!event.alloc) {
      const auto found = alive_.find(member);
      const std::uint64_t address = found->second;
      in_use_.erase(address);
      alive_.erase(found);
      return address;
    }
    std::uint64_t address = event.address;
    while (address == 0 || !in_use_.insert(address).second) {
      address = next_address_ += 512;
    }
    alive_[member] = address;
    return address;
  }

  /// Those that the trace has at all, each time: viewers stack what one event names.
  void WriteCounters(Nanos at, const CategoryBytes& alive) {
    std::string args;
    for (const Category category : categories_) {
      fmt::format_to(std::back_inserter(args), R"({}"{}":{})", args.empty() ? "" : ",", Name(category),
                     alive[category].count());
    }
    Event(R"({{"ph":"C","name":"bytes by category","pid":{},"ts":{},"args":{{{}}}}})", pid_, Micros(at), args);
  }

  void WriteSlices() {
    for (const Slice& slice : trace_.slices) {
      const std::string& kind = trace_.streams[slice.stream].kind;
      Event(
          R"({{"ph":"X","cat":"{}","name":{},"pid":{},"tid":{},"ts":{},"dur":{},"args":{{"device":{},"stream":{}}}}})",
          kind == "host"   ? "cuda_runtime"
          : kind == "copy" ? "gpu_memcpy"
                           : "kernel",
          JsonText(trace_.strings[slice.name.index]), pid_, slice.stream, Micros(slice.start),
          Micros(slice.end - slice.start), pid_, slice.stream);
    }
  }

  template <class... Parts>
  void Event(fmt::format_string<Parts...> format, Parts&&... parts) {
    out_ += first_ ? "\n" : ",\n";
    first_ = false;
    fmt::format_to(std::back_inserter(out_), format, std::forward<Parts>(parts)...);
  }

  const Trace& trace_;
  std::size_t pid_;
  std::string& out_;
  bool& first_;
  bool tells_blocks_, tells_reserved_;
  std::set<Category> categories_;
  std::multiset<std::uint64_t> refused_after_;  ///< so many events
  std::map<std::tuple<std::uint32_t, std::int32_t, std::int32_t>, std::uint64_t> alive_;
  std::set<std::uint64_t> in_use_;
  std::uint64_t next_address_ = std::uint64_t{1} << 45U;  ///< below those of processes and devices
};

}  // namespace

std::string ChromeText(std::span<const Trace> traces) {
  std::string out = fmt::format(R"({{"schemaVersion":1,"tidemark_origin":{},"displayTimeUnit":"ms","traceEvents":[)",
                                JsonText(traces.empty() ? "" : traces.front().origin));
  bool first = true;
  for (std::size_t i = 0; i < traces.size(); ++i) {
    TraceText(traces[i], i, out, first).Write();
  }
  out += "\n]}\n";
  return out;
}

}  // namespace tidemark
