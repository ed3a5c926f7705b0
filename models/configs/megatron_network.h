// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "base/result.h"
#include "models/configs/tool_fields.h"
#include "models/configs/value.h"

namespace tidemark {

/// The network of Megatron-LM's options, which name at least num-layers, hidden-size and num-attention-heads, over
/// `tensor_ranks` tensor-parallel ranks, whose number decides how many rows the vocabulary is filled up with
/// (core/tokenizers/utils/build_tokenizer.py, vocab_size_with_padding).
Status ReadMegatronNetwork(const ToolFields& fields, std::int64_t tensor_ranks, const Settings& given,
                           Settings& settings);

}  // namespace tidemark
