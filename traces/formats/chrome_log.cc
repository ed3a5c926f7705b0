// SPDX-License-Identifier: Apache-2.0
#include "traces/formats/chrome_log.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <span>
#include <variant>

#include "base/text.h"
#include "traces/formats/decimal_micros.h"
#include "traces/formats/device_recording.h"

namespace tidemark {
namespace {

using Json = nlohmann::json;

bool IsBetween(std::int64_t value, std::int64_t low, std::int64_t high) { return low <= value && value <= high; }

using Number = std::optional<std::int64_t>;
using Time = std::optional<Nanos>;

/// An event while it is read. Texts keep their room from one to the next.
struct Event {
  std::string ph, cat, name, pid, tid, given_name, origin, tensor, category, dtype, phase, side;
  Time ts, dur;
  Number bytes, allocated, reserved, allocator, device_type, device_id, event_index, device, microbatch, correlation;
  std::optional<std::uint64_t> address;

  void Clear() {
    for (std::string* text :
         {&ph, &cat, &name, &pid, &tid, &given_name, &origin, &tensor, &category, &dtype, &phase, &side}) {
      text->clear();
    }
    ts = dur = std::nullopt;
    bytes = allocated = reserved = allocator = device_type = device_id = event_index = device = microbatch =
        correlation = std::nullopt;
    address = std::nullopt;
  }
};

/// A key of JSON that matters, and where in an event its value goes.
struct Field {
  std::string_view key;
  std::variant<std::string Event::*, Number Event::*, Time Event::*, std::optional<std::uint64_t> Event::*> to;
};

constexpr std::array kEventFields = {Field{"ph", &Event::ph},   Field{"cat", &Event::cat}, Field{"name", &Event::name},
                                     Field{"pid", &Event::pid}, Field{"tid", &Event::tid}, Field{"ts", &Event::ts},
                                     Field{"dur", &Event::dur}};

/// Of "args"; from "Tensor" on in Tidemark's own files only.
constexpr std::array kArgumentFields = {
    Field{"Addr", &Event::address},
    Field{"Bytes", &Event::bytes},
    Field{"Total Allocated", &Event::allocated},
    Field{"Total Reserved", &Event::reserved},
    Field{"Device Type", &Event::device_type},
    Field{"Device Id", &Event::device_id},
    Field{"Ev Idx", &Event::event_index},
    Field{"device", &Event::device},
    Field{"correlation", &Event::correlation},
    Field{"name", &Event::given_name},
    Field{"Tensor", &Event::tensor},
    Field{"Allocator", &Event::allocator},
    Field{"Origin", &Event::origin},
    Field{"Category", &Event::category},
    Field{"Dtype", &Event::dtype},
    Field{"Phase", &Event::phase},
    Field{"Microbatch", &Event::microbatch},
    Field{"Side", &Event::side},
};

const Field* FindField(std::span<const Field> fields, std::string_view key) {
  const auto found = std::find_if(fields.begin(), fields.end(), [&](const Field& field) { return field.key == key; });
  return found == fields.end() ? nullptr : &*found;
}

/// Puts whole events into the log.
class LogBuilder {
 public:
  LogBuilder() { log_.names.Intern(""); }

  void Add(const Event& event) {
    ++log_.events;
    if (event.ph == "X") {
      AddSlice(event);
    } else if ((event.ph == "i" || event.ph == "I") && event.name == "[memory]") {
      AddBlock(event, log_.blocks);
    } else if ((event.ph == "i" || event.ph == "I") && event.name == "[OutOfMemory]") {
      AddBlock(event, log_.out_of_memory);
    } else if (event.ph == "M" && event.name == "thread_name") {
      log_.thread_names[ThreadOf(event)] = log_.names.Intern(event.given_name);
    } else if (event.ph == "M" && event.name == "process_name") {
      ThreadOf(event);
      log_.processes[process_] = {log_.names.Intern(event.given_name), log_.names.Intern(event.origin)};
    }
  }

  ChromeLog& log() { return log_; }

 private:
  void AddSlice(const Event& event) {
    const bool is_copy = event.cat == "gpu_memcpy" || event.cat == "gpu_memset";
    const bool on_device = is_copy || event.cat == "kernel";
    const bool is_operator = event.cat == "cpu_op" || event.cat == "Operator";
    const bool is_annotation = event.cat == "user_annotation";
    if (!on_device && !is_operator && !is_annotation) {
      if (event.cat.starts_with("cuda_") && event.ts && event.correlation) {  // cuda_runtime, cuda_driver
        log_.issued.emplace(*event.correlation, *event.ts);
      }
      return;
    }
    if (!event.ts || !event.dur || *event.dur < Nanos() ||
        (on_device && !IsBetween(event.device.value_or(0), 0, 1 << 20))) {
      ++log_.unreadable;
      return;
    }
    ChromeSlice slice;
    slice.begin = *event.ts;
    slice.end = *event.ts + *event.dur;
    slice.name = log_.names.Intern(event.name);
    slice.thread = ThreadOf(event);
    slice.process = process_;
    slice.correlation = event.correlation.value_or(-1);
    slice.device = static_cast<std::int32_t>(event.device.value_or(0));
    slice.is_copy = is_copy;
    if (is_annotation) {
      log_.annotations.push_back(
          {slice, log_.names.Intern(event.phase), log_.names.Intern(event.side), event.microbatch.value_or(-1)});
    } else {
      (on_device ? log_.device_slices : log_.operators).push_back(slice);
    }
  }

  void AddBlock(const Event& event, std::vector<ChromeBlock>& to) {
    ChromeBlock block;
    block.n_bytes = event.bytes.value_or(0);
    block.allocator_bytes = event.allocator ? *event.allocator : event.allocated.value_or(-1);
    block.reserved_bytes = event.reserved.value_or(-1);
    const bool is_block = &to == &log_.blocks;
    if (!event.ts || (is_block && (!event.address || !event.bytes)) ||
        !IsBetween(block.n_bytes, -kMostRecorded, kMostRecorded) ||
        !IsBetween(block.allocator_bytes, -1, kMostRecorded) || !IsBetween(block.reserved_bytes, -1, kMostRecorded)) {
      ++log_.unreadable;
      return;
    }
    block.at = *event.ts;
    block.order = event.event_index ? static_cast<std::uint64_t>(*event.event_index) : log_.events;
    block.address = event.address.value_or(0);
    block.device = {event.device_type.value_or(0), event.device_id.value_or(-1)};
    block.thread = ThreadOf(event);
    block.process = process_;
    block.tensor = log_.names.Intern(event.tensor);
    block.category = ParseCategory(event.category).value_or(Category::unknown);
    block.dtype = ParseDType(event.dtype).value_or(DType::u8);
    to.push_back(block);
  }

  /// Also sets process_. Most events are of the thread of the one before.
  std::uint32_t ThreadOf(const Event& event) {
    if (event.pid != pid_ || event.tid != tid_ || process_ == 0) {
      pid_ = event.pid;
      tid_ = event.tid;
      process_ = log_.names.Intern("process " + pid_);
      thread_ = log_.names.Intern(fmt::format("thread {} of {}", tid_, pid_));
    }
    return thread_;
  }

  ChromeLog log_;
  std::string pid_, tid_;
  std::uint32_t process_ = 0, thread_ = 0;
};

/// Hears the JSON text. Everything that is not an event, or not of interest in one, passes by.
class Listener : public nlohmann::json_sax<Json> {
 public:
  bool null() override { return Done(); }
  bool boolean(bool) override { return Done(); }
  bool binary(binary_t&) override { return Done(); }

  bool number_integer(number_integer_t value) override {
    if (auto* number = Target<Number>(); number != nullptr) {
      *number = value;
    } else if (auto* address = Target<std::optional<std::uint64_t>>(); address != nullptr) {
      *address = static_cast<std::uint64_t>(value);
    } else {
      SetText(fmt::to_string(value));
    }
    return Done();
  }

  bool number_unsigned(number_unsigned_t value) override {
    if (value <= std::uint64_t{INT64_MAX}) {
      return number_integer(static_cast<std::int64_t>(value));
    }
    if (auto* address = Target<std::optional<std::uint64_t>>(); address != nullptr) {
      *address = value;
    }
    return Done();
  }

  /// Some tools write whole numbers as real ones.
  bool number_float(number_float_t value, const string_t& text) override {
    auto* number = Target<Number>();
    if (number != nullptr && std::abs(value) < 0x1p62 && std::trunc(value) == value) {
      *number = static_cast<std::int64_t>(value);
    } else {
      SetText(text);
    }
    return Done();
  }

  bool string(string_t& text) override {
    if (is_origin_) {
      builder_.log().origin = text;
    } else {
      SetText(text);
    }
    return Done();
  }

  bool key(string_t& name) override {
    field_ = nullptr;
    if (depth_ == 1 && events_depth_ == 0) {
      is_list_ = name == "traceEvents";
      is_origin_ = name == "tidemark_origin";
    } else if (InEvent()) {
      field_ = FindField(kEventFields, name);
      opens_arguments_ = name == "args";
    } else if (in_arguments_ && depth_ == events_depth_ + 2) {
      field_ = FindField(kArgumentFields, name);
    }
    return true;
  }

  bool start_object(std::size_t) override {
    in_arguments_ = in_arguments_ || (InEvent() && opens_arguments_);
    ++depth_;
    if (InEvent()) {
      event_.Clear();
    }
    return Done();
  }

  bool end_object() override {
    if (InEvent()) {
      builder_.Add(event_);
    }
    --depth_;
    in_arguments_ = in_arguments_ && !InEvent();
    return Done();
  }

  bool start_array(std::size_t) override {
    ++depth_;
    if (events_depth_ == 0 && (depth_ == 1 || (depth_ == 2 && is_list_))) {
      events_depth_ = depth_;
    }
    return Done();
  }

  bool end_array() override {
    if (depth_ == events_depth_) {
      events_depth_ = 0;
    }
    --depth_;
    return Done();
  }

  bool parse_error(std::size_t position, const std::string&, const Json::exception&) override {
    failed_at_ = position;
    return false;
  }

  std::optional<std::size_t> failed_at() const { return failed_at_; }
  ChromeLog& log() { return builder_.log(); }

 private:
  bool InEvent() const { return events_depth_ != 0 && depth_ == events_depth_ + 1; }

  /// Where the next value goes, if it is to be one of that type.
  template <class Value>
  Value* Target() {
    if (field_ == nullptr) {
      return nullptr;
    }
    const auto* member = std::get_if<Value Event::*>(&field_->to);
    return member == nullptr ? nullptr : &(event_.**member);
  }

  /// Times are numbers, ids of threads are numbers or texts.
  void SetText(std::string_view text) {
    if (auto* time = Target<Time>(); time != nullptr) {
      *time = NanosOfMicros(text);
    } else if (auto* to = Target<std::string>(); to != nullptr) {
      *to = text;
    }
  }

  bool Done() {
    field_ = nullptr;
    is_list_ = is_origin_ = opens_arguments_ = false;
    return true;
  }

  LogBuilder builder_;
  Event event_;
  const Field* field_ = nullptr;  // of the value that comes next
  std::size_t depth_ = 0;
  std::size_t events_depth_ = 0;  // of the list of events; 0: outside
  bool is_list_ = false, is_origin_ = false, opens_arguments_ = false, in_arguments_ = false;
  std::optional<std::size_t> failed_at_;
};

}  // namespace

Result<ChromeLog> ReadChromeLog(std::string_view bytes) {
  Listener listener;
  Json::sax_parse(bytes.data(), bytes.data() + bytes.size(), &listener);
  ChromeLog& log = listener.log();
  if (const auto at = listener.failed_at(); at && *at < bytes.size()) {
    return BadInput(
        fmt::format("JSON was expected, but byte {} cannot be part of it, after {} events",
                    Grouped(static_cast<std::int64_t>(*at)), Grouped(static_cast<std::int64_t>(log.events))),
        "the file is damaged there; one that only lacks its end can be read");
  }
  log.cut_off = listener.failed_at().has_value();
  return std::move(log);
}

}  // namespace tidemark
