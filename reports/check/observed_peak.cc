// SPDX-License-Identifier: Apache-2.0
#include "reports/check/observed_peak.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "base/category.h"
#include "base/text.h"
#include "reports/check/json_document.h"
#include "reports/check/live_json.h"
#include "reports/summarise/yaml_json.h"

namespace tidemark {
namespace {

using Json = nlohmann::json;

/// Where the rank's memory is highest.
Result<std::string> PlaceOf(const Json& at) {
  TIDEMARK_ASSIGN(const std::string phase, TextAt(at, "phase"));
  const auto number = [&](const char* key) {
    const auto found = at.find(key);
    return found != at.end() && found->is_number_integer() ? found->get<std::int64_t>() : -1;
  };
  const auto side = at.find("side");  // of a dual encoder, which counts chunks
  if (side != at.end() && side->is_string()) {
    return PhaseText(phase, number("chunk"), number("step"), side->get<std::string>());
  }
  return PhaseText(phase, number("microbatch"), number("step"));
}

/// Null where there is no GPU library to ask.
Result<Bytes> DeviceUsed(const Json& run, const Json& peak) {
  const auto budget = run.find("budget");
  if (budget != run.end() && budget->is_object() && budget->contains("device_used_bytes") &&
      !budget->at("device_used_bytes").is_null()) {
    TIDEMARK_ASSIGN(const std::int64_t used, NumberAt(*budget, "device_used_bytes"));
    return Bytes(used);
  }
  TIDEMARK_ASSIGN(const std::int64_t reserved, NumberAt(peak, "reserved_bytes"));
  return Bytes(reserved);
}

Result<ObservedPeak> ReadRunKeys(const Json& run) {
  ObservedPeak observed;
  observed.measured = true;
  TIDEMARK_ASSIGN(const Json steps, ListAt(run, "steps"));
  observed.steps = static_cast<std::int64_t>(steps.size());
  TIDEMARK_ASSIGN(const Json peak, ObjectAt(run, "peak"));
  TIDEMARK_ASSIGN(const Json at, ObjectAt(peak, "at"));
  TIDEMARK_ASSIGN(observed.at, PlaceOf(at));
  TIDEMARK_ASSIGN(observed.peak, ReadPeak(peak, "allocated_bytes"));
  TIDEMARK_ASSIGN(observed.device, DeviceUsed(run, peak));
  TIDEMARK_ASSIGN(const Json job, ObjectAt(run, "job"));
  observed.job = job.dump();
  TIDEMARK_ASSIGN(observed.hardware, ReadHardware(run));
  if (const auto validity = run.find("validity"); validity != run.end() && validity->is_object()) {
    TIDEMARK_ASSIGN(const Json reasons, ListAt(*validity, "reasons"));
    for (const Json& reason : reasons) {
      observed.doubts.push_back(reason.is_string() ? reason.get<std::string>() : "");
    }
  }
  return observed;
}

}  // namespace

ObservedPeak PeakOf(const PredictionReport& report) {
  ObservedPeak observed;
  const RoleReport& worst = report.Worst();
  observed.peak = worst.peak;
  observed.at = PhaseText(worst.peak.phase, worst.peak.microbatch, worst.peak.step, worst.peak.side);
  observed.device = worst.device.high;
  observed.job = JsonOfYaml(report.job_yaml).dump(-1, ' ', false, Json::error_handler_t::replace);
  return observed;
}

Result<ObservedPeak> ReadRun(std::string_view json, const std::string& path) {
  TIDEMARK_ASSIGN(const Json run, ParseDocument(json, path, "tidemark.run/1"));
  if (const auto out = run.find("out_of_memory"); out != run.end() && !out->is_null()) {
    Error error = BadInput("this run ran out of memory: it has no peak to compare",
                           "give it more (--capacity), or a smaller job");
    error.where = path;
    return error;
  }
  Result<ObservedPeak> observed = ReadRunKeys(run);
  return std::move(observed).At(path);
}

}  // namespace tidemark
