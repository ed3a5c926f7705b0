// SPDX-License-Identifier: Apache-2.0
//
// Writes the HTML report of a made-up job for html_screenshot_test.py: write_sample_page FILE MICROBATCHES LAYERS
// [hostile|report|compare]. With compare it is that of three traces, of which the second has half the layers and the
// third half the microbatches. Or the page of a made-up sweep: write_sample_page FILE sweep ROWS [hostile].
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <string>

#include "reports/render/render.h"
#include "tests/reports/sample_report.h"
#include "tests/reports/sample_sweep.h"

namespace {

constexpr const char* kAttack =
    "</script><script>document.documentElement.dataset.attacked='yes'</script><img src=http://a.b/c>";

/// The names of the files are hostile, too.
void WriteComparison(const std::string& path, tidemark::SampleSize size) {
  using tidemark::SampleTrace;
  const auto file = [](const std::string& name, tidemark::SampleSize of) {
    return tidemark::ReadTrace{name, {{SampleTrace(of).Make()}, "", "tidemark"}};
  };
  const tidemark::TraceReport report =
      tidemark::MakeTraceReport({file("whole", size), file(kAttack, {size.microbatches, size.layers / 2}),
                                 file("short", {size.microbatches / 2, size.layers})});
  std::ofstream(path) << tidemark::RenderAs("html", report);
}

/// One tensor of the first trace is larger in the second one.
void WriteDifference(const std::string& path, tidemark::SampleSize size) {
  tidemark::Trace measured = tidemark::SampleTrace(size).Make();
  measured.origin = "measured on " + std::string(kAttack);
  measured.tensors[5].bytes += tidemark::Bytes(1 << 30);
  const tidemark::Result<tidemark::ComparisonReport> report = tidemark::MakeComparison(
      {"p.trace", {{tidemark::SampleTrace(size).Make()}, "", "tidemark"}}, {"m.trace", {{measured}, "", "tidemark"}});
  std::ofstream(path) << tidemark::RenderAs("html", *report);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc > 3 && std::string(argv[2]) == "sweep") {
    tidemark::SweepReport report = tidemark::SampleSweep(std::atoll(argv[3]));
    if (argc > 4) {
      report.title = report.machine = report.refusals[0].reason = report.rows[0].values[0] = report.keys[0] = kAttack;
    }
    std::ofstream(argv[1]) << tidemark::RenderAs("html", report);
    return 0;
  }
  if (argc < 4) {
    std::cerr << "usage: write_sample_page FILE MICROBATCHES LAYERS [hostile|report|compare]\n";
    return 2;
  }
  if (argc > 4 && std::string(argv[4]) == "compare") {
    WriteDifference(argv[1], {std::atoll(argv[2]), std::atoll(argv[3])});
    return 0;
  }
  if (argc > 4 && std::string(argv[4]) == "report") {
    WriteComparison(argv[1], {std::atoll(argv[2]), std::atoll(argv[3])});
    return 0;
  }
  tidemark::PredictionReport report = tidemark::SampleReport({std::atoll(argv[2]), std::atoll(argv[3])});
  if (argc > 4) {
    const std::string attack = kAttack;
    report.title = attack;
    report.lints[0].message = attack;
    report.roles[0].role = attack;
    report.roles[0].trace->role = attack;
    report.roles[0].trace->tensors[3].name = attack;
    report.roles[0].trace->strings[0] = attack;
    report.roles[0].trace->spans[0].phase = attack;
  }
  std::ofstream(argv[1]) << tidemark::RenderAs("html", report);
  std::size_t events = 0;
  for (const tidemark::RoleReport& role : report.roles) {
    events = std::max(events, role.trace->memory.size() + role.trace->slices.size());
  }
  std::cout << events << "\n";
  return 0;
}
