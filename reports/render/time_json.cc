// SPDX-License-Identifier: Apache-2.0
#include "reports/render/time_json.h"

namespace tidemark {

nlohmann::ordered_json TimeJson(const TimeReport& time) {
  return {{"step_ns", time.step.count()},
          {"compute_ns", time.compute.count()},
          {"recompute_ns", time.recompute.count()},
          {"exposed_communication_ns", time.exposed_communication.count()},
          {"bubble_ns", time.bubble.count()},
          {"optimizer_ns", time.optimizer.count()},
          {"host_ns", time.host.count()}};
}

nlohmann::ordered_json LastRoleJson(const TimeReport& time) {
  return time.role.empty() ? nlohmann::ordered_json() : nlohmann::ordered_json(time.role);
}

}  // namespace tidemark
