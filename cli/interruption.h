// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace tidemark {

/// From here on the first SIGINT or SIGTERM only asks for an end in good order; a second one ends the process.
void StopOnRequest();
/// Whether one has come.
bool StopRequested();

}  // namespace tidemark
