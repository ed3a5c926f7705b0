// SPDX-License-Identifier: Apache-2.0
#include "sim/cost/overlap.h"

#include <algorithm>
#include <numeric>

#include "sim/program/walk.h"

namespace tidemark {

Overlap::Flight& Overlap::At(FlightId flight) {
  flights_.resize(std::max<std::size_t>(flights_.size(), flight.index + std::size_t{1}));
  return flights_[flight.index];
}

void Overlap::AddCollective(FlightId flight, Nanos time) { At(flight).collectives += time; }

void Overlap::AddKernel(std::span<const FlightId> beside, Nanos time) {
  for (const FlightId flight : beside) {
    At(flight).kernels += time;
  }
}

double Overlap::CollectivesOverKernels(std::span<const FlightId> beside) const {
  double sum = 0;
  for (const FlightId id : beside) {
    const Flight flight = id.index < flights_.size() ? flights_[id.index] : Flight{};
    if (flight.kernels > Nanos()) {
      // Reduced, as a quotient of rounded multiples need not be that of the numbers.
      const std::int64_t common = std::gcd(flight.collectives.count(), flight.kernels.count());
      const std::int64_t collectives = flight.collectives.count() / common, kernels = flight.kernels.count() / common;
      sum += static_cast<double>(collectives) / static_cast<double>(kernels);
    }
  }
  return sum;
}

Nanos TimeBeside(double collectives_over_kernels, double alone, const Machine& machine) {
  const double most = machine.overlap_slowdown;
  return RoundToNanos(machine.overlap ? alone * std::min(most, 1 + collectives_over_kernels * (1 - 1 / most)) : alone);
}

Overlap OverlapOf(const Program& program, std::span<const Nanos> alone) {
  Overlap overlap;
  ForEachLeafAndTimes(program, [&](std::size_t at, std::int64_t times) {
    if (const auto* collective = std::get_if<Collective>(&program.nodes[at])) {
      if (collective->flight.valid()) {
        overlap.AddCollective(collective->flight, alone[at] * times);
      }
    } else if (const auto* compute = std::get_if<Compute>(&program.nodes[at])) {
      overlap.AddKernel(program.FlightsBeside(*compute), alone[at] * times);
    }
  });
  return overlap;
}

}  // namespace tidemark
