// SPDX-License-Identifier: Apache-2.0
#include "sim/strategies/parameter_table.h"

#include <fmt/format.h>

#include "sim/strategies/host_optimizer.h"

namespace tidemark {
namespace {

/// What a buffer of so many elements holds of a parameter: nothing that its name does not say, the parameter and
/// padding, or a part `as` given. A part that is no multiple is not rounded up, as those of frozen parameters.
std::vector<Holding> HoldsOne(const std::optional<Holding>& as, const std::string& parameter, std::int64_t elements,
                              std::int64_t whole) {
  if (!as) {
    return elements <= whole ? std::vector<Holding>()
                             : std::vector{Holding{.frozen = true, .of = {{parameter}}, .multiple = elements}};
  }
  Holding holding = *as;
  holding.of = {{parameter}};
  holding.multiple = elements % holding.multiple == 0 ? holding.multiple : 1;
  return {holding};
}

}  // namespace

void ParameterTable::Declare(Role& role, const std::string& what, Category category, DType dtype,
                             const Elements& elements_of, bool resident, bool kept, const std::optional<Holding>& as,
                             StreamId born) {
  for (const StageRun& run : role.stage.runs) {
    buffers_.emplace_back();
    for (const Parameter& parameter : run.block().parameters) {
      const std::int64_t elements = parameter.tied ? 0 : elements_of(parameter);
      const std::string name = run.block().name + "." + parameter.name;
      buffers_.back().push_back(elements == 0
                                    ? BufferId{}
                                    : role.builder.AddBuffer({fmt::format("{} {}", what, name),
                                                              category,
                                                              dtype,
                                                              elements,
                                                              {run.count, 1},
                                                              born.valid() ? born : role.compute,
                                                              born == kHostStream ? Place::host : Place::device,
                                                              resident,
                                                              kept,
                                                              {},
                                                              HoldsOne(as, name, elements, parameter.elements)}));
    }
  }
}

void ParameterTable::DeclareSlices(Role& role, const std::string& what, Category category, DType dtype,
                                   const std::function<BufferSlice(const ParameterAt&)>& where) {
  for (std::size_t run = 0; run < role.stage.runs.size(); ++run) {
    const std::int64_t first = role.stage.first[run], count = role.stage.runs[run].count;
    const Block& block = role.stage.runs[run].block();
    buffers_.emplace_back(block.parameters.size());
    for (std::uint32_t i = 0; i < block.parameters.size(); ++i) {
      const Parameter& parameter = block.parameters[i];
      if (!IsTrained(parameter)) {
        continue;
      }
      Buffer slices{.name = fmt::format("{} {}.{}", what, block.name, parameter.name),
                    .category = category,
                    .dtype = dtype,
                    .elements = parameter.elements,
                    .extents = {count, 1},
                    .stream = role.compute};
      for (std::int64_t position = first; position < first + count; ++position) {
        slices.slices.push_back(where({position, i}));
      }
      buffers_.back()[i] = role.builder.AddBuffer(std::move(slices));
    }
  }
}

}  // namespace tidemark
