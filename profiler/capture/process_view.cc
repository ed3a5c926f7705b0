// SPDX-License-Identifier: Apache-2.0
#include "profiler/capture/process_view.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <memory>
#include <string>
#include <utility>

#include "base/text.h"
#include "profiler/capture/beside_tensors.h"
#include "profiler/capture/heap.h"
#include "profiler/capture/process_memory.h"

namespace tidemark {
namespace {

constexpr std::int64_t kFinest = 64;  // a new high is one by this part

constexpr std::array kProcessParts = {BudgetPart::tensors,      BudgetPart::rounding,      BudgetPart::cached,
                                      BudgetPart::host_tensors, BudgetPart::communication, BudgetPart::workspace,
                                      BudgetPart::trace,        BudgetPart::step_program,  BudgetPart::data,
                                      BudgetPart::executor,     BudgetPart::verification,  BudgetPart::heap_kept,
                                      BudgetPart::code,         BudgetPart::stack,         BudgetPart::profiler};

/// Owners of the heap and the parts that they are; what nobody claims is in none.
constexpr std::array<std::pair<HeapOwner, BudgetPart>, 9> kHeapParts = {{
    {HeapOwner::step_program, BudgetPart::step_program},
    {HeapOwner::data, BudgetPart::data},
    {HeapOwner::executor, BudgetPart::executor},
    {HeapOwner::host_tensors, BudgetPart::host_tensors},
    {HeapOwner::workspace, BudgetPart::workspace},
    {HeapOwner::communication, BudgetPart::communication},
    {HeapOwner::trace, BudgetPart::trace},
    {HeapOwner::verification, BudgetPart::verification},
    {HeapOwner::profiler, BudgetPart::profiler},
}};

}  // namespace

ProcessView::ProcessView(TensorMemory& memory, HostMemory& host)
    : memory_(memory),
      host_(host),
      forgot_peak_(ForgetResidentPeak()),
      highest_(BudgetOf(Budget::Memory::process, kProcessParts)) {
  memory_.AfterAllocating([this] { Look(); });
  host_.BeforeGiving([this] { Look(); });
  BeforeLargeFrees([](void* self) { static_cast<ProcessView*>(self)->Look(); }, this);
}

ProcessView::~ProcessView() {
  BeforeLargeFrees(nullptr, nullptr);
  host_.BeforeGiving({});
  memory_.AfterAllocating({});
}

void ProcessView::Look() {
  const auto resident = ResidentNow();
  if (looking_ || !resident || *resident <= highest_.used + highest_.used / kFinest) {
    return;
  }
  looking_ = true;
  const HeapScope scope(HeapOwner::profiler);
  highest_.used = *resident;
  // Page by page, as what nobody has touched takes no memory.
  const BesideTensors beside = CountBesideTensors(
      memory_, [&](const VisitStretch& visit) { host_.ForEachMapped(visit); }, ResidentIn);
  highest_[BudgetPart::tensors] = memory_.live_bytes();
  highest_[BudgetPart::rounding] = beside.rounding;
  highest_[BudgetPart::cached] = beside.cached;
  CountTheHeap();
  looking_ = false;
}

void ProcessView::CountTheHeap() {
  const HeapUse heap = LiveHeap();
  for (const auto& [owner, part] : kHeapParts) {
    highest_[part] = heap[static_cast<std::size_t>(owner)];
  }
  highest_[BudgetPart::heap_kept] = HeapKept();
}

Budget ProcessView::Close(std::int64_t rank) {
  Look();
  highest_.rank = rank;
  const auto mappings = ReadMappings();
  const auto status = ReadProcessStatus();
  if (mappings) {
    highest_[BudgetPart::code] = mappings->code;
    highest_[BudgetPart::stack] = mappings->stack;
    highest_[BudgetPart::communication] += mappings->shared;
  }
  if (!HeapIsCounted()) {
    highest_.reasons.emplace_back("this build does not count its heap (a sanitizer, or a C library that is not glibc)");
  }
  if (!mappings || !status || highest_.used == Bytes()) {
    highest_.reasons.emplace_back("the system does not tell what is resident (/proc/self/smaps)");
    return highest_;
  }
  const auto now = ResidentNow(), exactly = ResidentExactly();
  const Bytes off = now && exactly ? std::max(*now, *exactly) - std::min(*now, *exactly) : Bytes();
  if (off > highest_.bound()) {
    highest_.reasons.push_back(fmt::format("the system's count of resident pages is off by {}", Text(off)));
  }
  highest_.resident_peak = forgot_peak_ ? status->resident_peak : highest_.used;
  for (std::string& doubt : DoubtsOf(highest_)) {
    highest_.reasons.push_back(std::move(doubt));
  }
  if (status->swapped > Bytes()) {
    highest_.reasons.push_back(fmt::format("{} were swapped out: times are a disk's, too", Text(status->swapped)));
  }
  return highest_;
}

MakeOutsideView WatchProcess(HostDevice& host) {
  return [&host](TensorMemory& memory) { return std::make_unique<ProcessView>(memory, *host.memory()); };
}

}  // namespace tidemark
