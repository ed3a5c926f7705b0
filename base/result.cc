// SPDX-License-Identifier: Apache-2.0
#include "base/result.h"

#include <algorithm>

namespace tidemark {

std::string Error::Text() const {
  std::string text = where.empty() ? message : where + ": " + message;
  if (!hint.empty()) {
    text += "\nhint: " + hint;
  }
  std::replace_if(
      text.begin(), text.end(), [](unsigned char c) { return (c < 0x20 && c != '\n' && c != '\t') || c == 0x7f; }, '?');
  return text;
}

Error BadInput(std::string message, std::string hint) {
  TIDEMARK_CHECK(!message.empty());
  return Error{ErrorCode::bad_input, {}, std::move(message), std::move(hint)};
}

Error BadKey(std::string key, std::string message, std::string hint) {
  Error error = BadInput(std::move(message), std::move(hint));
  error.where = std::move(key);
  return error;
}

}  // namespace tidemark
