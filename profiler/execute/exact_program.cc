// SPDX-License-Identifier: Apache-2.0
#include "profiler/execute/exact_program.h"

#include <utility>

#include "profiler/execute/operation.h"

namespace tidemark {

StepProgram ExactProgram(StepProgram program) {
  for (Program& role : program.roles) {
    for (Buffer& buffer : role.buffers) {
      buffer.dtype = Stored(buffer.dtype, true);
    }
  }
  return program;
}

}  // namespace tidemark
