// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "reports/render/report.h"

namespace tidemark {

struct RenderOptions {
  bool colour = false;  ///< terminal escapes; only where a person looks at a terminal
};

/// Turns a report into text. reports/render/render_<x>.cc defines `std::unique_ptr<Renderer> Render<X>()`; that file is
/// all a new renderer needs (cmake/table.cmake makes the table). Pure: the same report gives the same bytes.
class Renderer {
 public:
  virtual ~Renderer() = default;

  virtual std::string_view name() const = 0;     ///< "terminal", "json", "markdown", "html"
  virtual std::string_view summary() const = 0;  ///< one line, without a full stop

  virtual std::string Render(const Report& report, const RenderOptions& options) const = 0;
};

/// All renderers, by name. Generated.
std::vector<std::unique_ptr<Renderer>> MakeRenderers();

/// Renders with the renderer of that name, which must exist.
std::string RenderAs(std::string_view name, const Report& report, const RenderOptions& options = {});

}  // namespace tidemark
