// SPDX-License-Identifier: Apache-2.0
#include "base/check.h"
#include "sim/program/program.h"

namespace tidemark {
namespace {

template <class Enum, std::size_t kSize>
std::string_view NameIn(const std::array<std::string_view, kSize>& names, Enum value) {
  return names.at(static_cast<std::size_t>(value));
}

}  // namespace

std::string_view Name(Phase phase) {
  static constexpr std::array<std::string_view, kPhases> kNames = {
      "load", "A_forward", "B_loss", "C_forward", "C_backward", "forward", "backward", "reduce", "optimizer", "gather"};
  return NameIn(kNames, phase);
}

std::string_view Name(Side side) {
  static constexpr std::array<std::string_view, kSides> kNames = {"", "query", "passage"};
  return NameIn(kNames, side);
}

std::string_view Name(CollectiveKind kind) {
  static constexpr std::array<std::string_view, 8> kNames = {
      "all_reduce", "reduce_scatter", "all_gather", "all_to_all", "broadcast", "reduce", "shift_up", "shift_down"};
  return NameIn(kNames, kind);
}

std::string_view Name(StreamKind kind) {
  static constexpr std::array<std::string_view, 5> kNames = {"host", "compute", "collective", "peer", "copy"};
  return NameIn(kNames, kind);
}

std::string_view Name(Work work) {
  static constexpr std::array<std::string_view, 3> kNames = {"compute", "recompute", "optimizer"};
  return NameIn(kNames, work);
}

std::string_view Name(Cut cut) {
  static constexpr std::array<std::string_view, 4> kNames = {"whole", "rows", "elements", "together"};
  return NameIn(kNames, cut);
}

std::string_view Name(Parts parts) {
  static constexpr std::array<std::string_view, 2> kNames = {"own", "all"};
  return NameIn(kNames, parts);
}

std::string_view Name(Reduction reduction) {
  static constexpr std::array<std::string_view, 4> kNames = {"none", "sum", "avg", "max"};
  return NameIn(kNames, reduction);
}

Bytes WireBytes(CollectiveKind kind, Bytes payload, std::int64_t group_size) {
  TIDEMARK_CHECK(payload >= Bytes(0) && group_size >= 1);
  if (group_size == 1) {
    return Bytes(0);
  }
  // floor(S (n-1) / n), written so that it cannot overflow.
  const Bytes ring = payload - Bytes(CeilDiv(payload.count(), group_size));
  switch (kind) {
    case CollectiveKind::all_reduce:
      return 2 * ring;
    case CollectiveKind::reduce_scatter:
    case CollectiveKind::all_gather:
    case CollectiveKind::all_to_all:
      return ring;
    case CollectiveKind::broadcast:
    case CollectiveKind::reduce:
    case CollectiveKind::shift_up:
    case CollectiveKind::shift_down:
      return payload;
  }
  Fail("a collective that is not in the enumeration", __FILE__, __LINE__);
}

}  // namespace tidemark
