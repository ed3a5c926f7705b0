// SPDX-License-Identifier: Apache-2.0
#include "base/check.h"
#include "reports/render/render.h"

namespace tidemark {

std::string RenderAs(std::string_view name, const Report& report, const RenderOptions& options) {
  for (const auto& renderer : MakeRenderers()) {
    if (renderer->name() == name) {
      return renderer->Render(report, options);
    }
  }
  const bool the_renderer_exists = false;
  TIDEMARK_CHECK(the_renderer_exists);
  return {};
}

}  // namespace tidemark
