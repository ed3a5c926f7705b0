// SPDX-License-Identifier: Apache-2.0
#include "sim/observe/observed_network.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <optional>
#include <utility>

#include "base/category.h"
#include "base/text.h"
#include "sim/observe/measured_microbatch.h"
#include "sim/observe/pass_times.h"
#include "sim/observe/row_cuts.h"

namespace tidemark {
namespace {

constexpr Bytes kMost{std::int64_t{1} << 60};  ///< so that sums of a few amounts stay far from overflow

class Observer {
 public:
  Observer(const Trace& trace, const ObserveOptions& options, std::vector<std::optional<std::size_t>> passes,
           MeasuredMicrobatch microbatch)
      : trace_(trace),
        options_(options),
        passes_(std::move(passes)),
        microbatch_(std::move(microbatch)),
        rows_(CutIntoRows(trace_, passes_, microbatch_, options_.most_rows)) {
    network_.table.samples = options.samples;
    network_.microbatch = PlaceOf(trace_, microbatch_.forward);
    network_.before = microbatch_.before;
  }

  Result<ObservedNetwork> Observe() && {
    TIDEMARK_TRY(LookAtGradients());
    Follow();
    TIDEMARK_TRY(FillRows());
    AddTimes();
    AddNotes();
    return std::move(network_);
  }

 private:
  const TraceTensor& TensorOf(std::size_t tensor) const {
    return trace_.tensors[trace_.memory[microbatch_.tensors[tensor].born].tensor.index];
  }

  Status LookAtGradients() {
    network_.dtype = options_.gradients;
    for (const MeasuredRow& row : rows_) {
      for (const std::size_t gradient : row.gradients) {
        const TraceTensor& tensor = TensorOf(gradient);
        if (tensor.category == Category::unknown) {
          continue;
        }
        network_.dtype = tensor.dtype;
        network_.tells_dtype = true;
        if (!tensor.sharding.empty() && tensor.sharding != "whole") {
          return BadInput(fmt::format("'{}' is a part of a gradient: {}", tensor.name, tensor.sharding),
                          "observe a microbatch of one rank, or of data parallelism without sharding: "
                          "the job's strategy divides what it needs");
        }
      }
    }
    return Done{};
  }

  /// The totals of the microbatch's own tensors: highest_[i] is the total behind event microbatch_.forward + i where
  /// that allocates, else 0.
  void Follow() {
    std::vector<Bytes> change(microbatch_.end - microbatch_.forward);
    std::vector<bool> allocates(change.size());
    Bytes total;
    for (std::size_t i = 0; i < microbatch_.tensors.size(); ++i) {
      const MeasuredTensor& tensor = microbatch_.tensors[i];
      const Bytes bytes = TensorOf(i).bytes;
      if (tensor.born < microbatch_.forward) {
        total += bytes;
      } else {
        change[tensor.born - microbatch_.forward] += bytes;
        allocates[tensor.born - microbatch_.forward] = true;
      }
      if (tensor.freed < microbatch_.end) {
        change[tensor.freed - microbatch_.forward] -= bytes;
      }
    }
    for (std::size_t i = 0; i < change.size(); ++i) {
      total += change[i];
      highest_.push_back(allocates[i] ? total : Bytes());
      network_.peak = std::max(network_.peak, total);
    }
  }

  /// The most between two events right after an allocation.
  Bytes HighestIn(std::size_t begin, std::size_t end) const {
    Bytes most;
    for (std::size_t i = begin; i < end; ++i) {
      most = std::max(most, highest_[i - microbatch_.forward]);
    }
    return most;
  }

  Status FillRows() {
    for (const MeasuredRow& row : rows_) {
      network_.saved += row.saved_bytes;
      network_.gradients += row.gradient_bytes;
    }
    if (std::max(network_.saved, network_.gradients) > kMost) {
      return BadInput("more than 2^60 bytes are saved, or are gradients, which no device holds");
    }
    const std::int64_t element = SizeOf(network_.dtype).count();
    Bytes saved, gradients = network_.gradients;
    for (const MeasuredRow& row : rows_) {
      TIDEMARK_TRY(CheckElements(row, element));
      saved += row.saved_bytes;
      const Bytes beside = saved + gradients;  // as the table has it while this row's backward pass runs
      const Bytes forward = HighestIn(row.forward_begin, row.forward_end);
      const Bytes backward = HighestIn(row.backward_begin, row.backward_end);
      TableRow& written = network_.table.rows.emplace_back();
      written.name = row.name;
      written.parameters = row.gradient_bytes.count() / element;
      written.saved_bytes = row.saved_bytes.count();
      written.transient_bytes = std::max(Bytes(), forward - saved).count();
      const std::int64_t transient = std::max(Bytes(), backward - beside).count();
      if (transient != written.transient_bytes) {
        written.backward_transient_bytes = transient;
      }
      network_.parameters += written.parameters;
      network_.table_peak = std::max({network_.table_peak, forward, saved, backward, beside});
      gradients -= row.gradient_bytes;
    }
    return Done{};
  }

  Status CheckElements(const MeasuredRow& row, std::int64_t element) const {
    for (const std::size_t gradient : row.gradients) {
      if (const std::int64_t bytes = TensorOf(gradient).bytes.count(); bytes % element != 0) {
        return BadInput(fmt::format("a gradient of {} bytes does not consist of elements of {} ({})", Grouped(bytes),
                                    Name(network_.dtype), TensorOf(gradient).name),
                        "say the gradients' dtype with --observed-dtype");
      }
    }
    return Done{};
  }

  void AddTimes() {
    std::vector<std::size_t> forward, backward;
    for (std::size_t i = 1; i < rows_.size(); ++i) {
      forward.push_back(rows_[i].forward_begin);
    }
    for (std::size_t i = rows_.size() - 1; i > 0; --i) {
      backward.push_back(rows_[i].backward_end);
    }
    const auto forward_times = DivideTime(trace_, passes_, microbatch_.forward_span, Existing(forward));
    const auto backward_times = DivideTime(trace_, passes_, microbatch_.backward_span, Existing(backward));
    network_.tells_times = !forward_times.empty() && !backward_times.empty();
    for (std::size_t i = 0; network_.tells_times && i < rows_.size(); ++i) {
      network_.table.rows[i].forward_ns = forward_times[i].count();
      network_.table.rows[i].backward_ns = backward_times[rows_.size() - 1 - i].count();
    }
  }

  /// A cut behind all memory events is one at the last of them.
  std::vector<std::size_t> Existing(std::vector<std::size_t> cuts) const {
    for (std::size_t& cut : cuts) {
      cut = std::min(cut, trace_.memory.size() - 1);
    }
    return cuts;
  }

  void AddNotes() {
    if (!network_.tells_dtype) {
      network_.notes.push_back(
          fmt::format("the trace does not tell the gradients' dtype: taken as {}", Name(network_.dtype)));
    }
    if (!network_.tells_times) {
      network_.notes.emplace_back("times are not observed: the trace tells none of what the device computed");
    }
    if (const Bytes more = network_.table_peak - network_.peak; more > Bytes()) {
      network_.notes.push_back(fmt::format(
          "the rows' own peak is {} above the measured one: a row's gradients and saved tensors are counted together",
          Text(more)));
    }
  }

  const Trace& trace_;
  const ObserveOptions& options_;
  std::vector<std::optional<std::size_t>> passes_;
  MeasuredMicrobatch microbatch_;
  std::vector<MeasuredRow> rows_;
  std::vector<Bytes> highest_;
  ObservedNetwork network_;
};

}  // namespace

Result<ObservedNetwork> ObserveNetwork(const Trace& trace, const ObserveOptions& options) {
  if (trace.memory.empty()) {
    return BadInput("the trace tells no allocations",
                    "record it with memory: profile_memory=True, or a memory snapshot");
  }
  std::vector<std::optional<std::size_t>> passes = PassesOfSpans(trace);
  TIDEMARK_ASSIGN(MeasuredMicrobatch microbatch, FindMeasuredMicrobatch(trace, passes));
  return Observer(trace, options, std::move(passes), std::move(microbatch)).Observe();
}

}  // namespace tidemark
