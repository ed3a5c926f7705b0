// SPDX-License-Identifier: Apache-2.0
#include "cli/interruption.h"

#include <atomic>
#include <csignal>

namespace tidemark {
namespace {

std::atomic<bool> requested = false;
static_assert(std::atomic<bool>::is_always_lock_free);

}  // namespace

void StopOnRequest() {
  struct sigaction action {};
  action.sa_handler = [](int) { requested = true; };
  action.sa_flags = static_cast<int>(SA_RESETHAND);
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
}

bool StopRequested() { return requested; }

}  // namespace tidemark
