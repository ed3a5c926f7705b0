// SPDX-License-Identifier: Apache-2.0
#include "models/job/read_network.h"

#include <fmt/format.h>

#include <filesystem>
#include <set>
#include <vector>

#include "base/file.h"
#include "base/text.h"
#include "models/configs/config_huggingface.h"
#include "models/configs/flatten.h"
#include "models/configs/hub_networks.h"
#include "models/job/fields.h"
#include "models/zoo/zoo.h"

namespace tidemark {
namespace {

/// `network: X`, or `network: {from: X, ...}`.
const ConfigValue* Base(const Settings& settings) {
  const ConfigValue* base = Find(settings, "network.from");
  return base != nullptr ? base : Find(settings, "network");
}

/// A name of the zoo with which this one begins, the longest: a model that sees images is called after its language
/// model (gemma-3-4b-it). Empty where there is none.
std::string LanguageModelOf(const std::string& name, const std::vector<std::string>& names) {
  std::string longest;
  for (const std::string& candidate : names) {
    if (name.starts_with(candidate + "-") && candidate.size() > longest.size()) {
      longest = candidate;
    }
  }
  return longest;
}

Result<Network> FindNetwork(const std::string& name_or_path, const std::string& folder) {
  std::vector<std::string> names;
  for (const EmbeddedFile& file : ZooFiles()) {
    if (file.name == name_or_path) {
      return FindInZoo(name_or_path);
    }
    names.emplace_back(file.name);
  }
  std::filesystem::path path = std::filesystem::path(folder) / name_or_path;
  std::error_code code;
  if (std::filesystem::is_directory(path, code)) {
    path = std::filesystem::absolute(path, code).lexically_normal() / "config.json";  // "." has a name, too
    if (!std::filesystem::exists(path, code)) {
      return BadInput(fmt::format("the folder '{}' has no config.json", name_or_path),
                      "a network is a name of the zoo (tidemark list networks), a config.json or its folder");
    }
  }
  if (!std::filesystem::exists(path, code)) {
    if (const std::string_view network = NetworkOfHub(name_or_path); !network.empty()) {
      return FindInZoo(network);
    }
    const std::string inner = LanguageModelOf(LowerCase(path.filename().string()), names);
    const std::vector<std::string> of_hub = HubNames();
    names.insert(names.end(), of_hub.begin(), of_hub.end());
    const std::string nearest = inner.empty() ? Nearest(LowerCase(name_or_path), names) : inner;
    return BadInput(fmt::format("'{}' is neither a network of the zoo nor a file", name_or_path),
                    nearest.empty() ? "tidemark list networks; any other is described by its config.json"
                                    : fmt::format("did you mean {}?", nearest));
  }
  TIDEMARK_ASSIGN(const std::string text, ReadTextFile(path.string()));
  return ReadHuggingFaceConfig(text, path.string());
}

Result<TableRow> ReadRow(const ConfigValue& item) {
  TableRow row;
  std::set<std::string> keys;
  for (const Field<TableRow>& field : TableRowFields()) {
    keys.insert(field.key);
  }
  TIDEMARK_ASSIGN(const Settings settings, Flatten(item, keys));
  for (const Field<TableRow>& field : TableRowFields()) {
    if (const ConfigValue* value = Find(settings, field.key)) {
      TIDEMARK_TRY(ReadField(field, row, *value, "network.table." + field.key));
    }
  }
  if (row.name.empty()) {
    return ErrorAt(item, "network.table", "a row has no name");
  }
  return row;
}

Result<Table> ReadTable(const ConfigValue& value, const Settings& settings) {
  if (value.kind != ConfigValue::Kind::list || value.items.empty()) {
    return ErrorAt(value, "network.table", fmt::format("expected a list of rows, found {}", Describe(value)),
                   "a row is {name: stem, parameters: 1856, saved_bytes: 262144, forward_flops: 3538944}");
  }
  Table table;
  for (const ConfigValue& item : value.items) {
    TIDEMARK_ASSIGN(TableRow row, ReadRow(item));
    table.rows.push_back(std::move(row));
  }
  for (const Field<Table>& field : TableFields()) {
    const std::string key = "network." + field.key;
    if (const ConfigValue* given = Find(settings, key)) {
      TIDEMARK_TRY(ReadField(field, table, *given, key));
    }
  }
  return table;
}

Status DivideHeads(Decoder& decoder, const std::string& section, const ConfigValue& place) {
  if (decoder.hidden % decoder.heads != 0) {
    return ErrorAt(place, section,
                   fmt::format("hidden size {} does not divide into {} heads", decoder.hidden, decoder.heads),
                   "give head_size");
  }
  decoder.head_size = decoder.hidden / decoder.heads;
  return Done{};
}

/// Fields that follow from others where nobody gives them.
Status Complete(Decoder& decoder, const Settings& settings, const std::string& section, const ConfigValue& place) {
  const bool needs_ffn = !settings.contains(section + ".experts.count") || decoder.experts.dense_layers > 0;
  for (const std::string_view key : {"layers", "hidden", "ffn", "heads", "vocabulary"}) {
    if (!settings.contains(section + "." + std::string(key)) && (key != "ffn" || needs_ffn)) {
      if (key == "ffn" && decoder.experts.dense_layers > 0) {
        return ErrorAt(place, section,
                       "lacks 'ffn', which layers before those with experts have (experts.dense_layers)",
                       "set network.ffn as well");
      }
      return ErrorAt(place, section, fmt::format("lacks '{}'", key),
                     "an inline network needs layers, hidden, ffn, heads and vocabulary; or name one of the zoo");
    }
  }
  if (!settings.contains(section + ".ffn")) {
    decoder.ffn = decoder.experts.ffn;
  }
  if (!settings.contains(section + ".kv_heads")) {
    decoder.kv_heads = decoder.heads;
  }
  if (settings.contains(section + ".head_size")) {
    return Done{};
  }
  if (decoder.IsLatent()) {
    return ErrorAt(place, section, "lacks 'head_size', which does not follow from heads in multi-latent attention",
                   "give that of queries and keys, qk_nope_head_dim + qk_rope_head_dim: 192 in DeepSeek V3");
  }
  return DivideHeads(decoder, section, place);
}

Result<std::vector<std::string>> ReadTrainable(const ConfigValue& value) {
  std::vector<std::string> globs;
  if (value.kind == ConfigValue::Kind::scalar) {
    globs.push_back(value.text);
  }
  for (const ConfigValue& item : value.items) {
    TIDEMARK_ASSIGN(std::string glob, Word{}.Read(item).At(fmt::format("{}: network.trainable", item.where)));
    globs.push_back(std::move(glob));
  }
  if (globs.empty() || value.is_map()) {
    return ErrorAt(
        value, "network.trainable",
        fmt::format("expected a list of patterns, found {}", value.items.empty() ? "nothing" : Describe(value)),
        "for example [\"layer.*\"]; leave the key out where everything is trained");
  }
  return globs;
}

bool IsDualEncoder(const Settings& settings) {
  const auto first = settings.lower_bound("network.dual_encoder.");
  return first != settings.end() && first->first.starts_with("network.dual_encoder.");
}

/// What the second tower takes over from the first follows from its own heads where those are given.
Status CompleteSecond(Decoder& second, const Settings& settings, const std::string& section, const ConfigValue& place) {
  const auto given = [&](const char* key) { return settings.contains(section + key); };
  if (given(".heads") && !given(".kv_heads")) {
    second.kv_heads = second.heads;
  }
  if ((given(".heads") || given(".hidden")) && !given(".head_size")) {
    TIDEMARK_TRY(DivideHeads(second, section, place));
  }
  return Done{};
}

/// Encoders see their whole input. What is not said of the second tower is as in the first.
Result<DualEncoder> ReadDualEncoder(const Settings& settings, const ConfigValue& place) {
  const std::string section = "network.dual_encoder";
  DualEncoder network;
  network.first.causal = false;
  const auto read = [&](bool second) -> Status {
    for (const Field<DualEncoder>& field : DualEncoderFields()) {
      const ConfigValue* value = Find(settings, section + "." + field.key);
      if (value != nullptr && field.key.starts_with("second.") == second) {
        TIDEMARK_TRY(ReadField(field, network, *value, section + "." + field.key));
      }
    }
    return Done{};
  };
  TIDEMARK_TRY(read(false));
  TIDEMARK_TRY(Complete(network.first, settings, section + ".first", place));
  network.second = network.first;
  const Decoder first = network.first;
  TIDEMARK_TRY(read(true));
  TIDEMARK_TRY(CompleteSecond(network.second, settings, section + ".second", place));
  if (network.shared && !(network.second == first)) {
    return ErrorAt(place, section + ".second", "is another encoder than the first, but they are shared",
                   "set shared to false, or remove second");
  }
  if (!settings.contains(section + ".representation")) {
    network.representation = first.hidden;
  }
  return network;
}

Status ReadShape(Network& network, const Settings& settings, const ConfigValue& place) {
  const ConfigValue* base = Base(settings);
  if (IsDualEncoder(settings)) {
    for (const Field<Decoder>& field : DecoderFields()) {
      if (const ConfigValue* value = Find(settings, "network." + field.key); value != nullptr || base != nullptr) {
        return ErrorAt(value == nullptr ? *base : *value, "network", "is a dual encoder, and something else as well",
                       "a dual encoder stands alone: remove the other keys of network");
      }
    }
    TIDEMARK_ASSIGN(network.shape, ReadDualEncoder(settings, place));
    return Done{};
  }
  if (const ConfigValue* table = Find(settings, "network.table")) {
    for (const Field<Decoder>& field : DecoderFields()) {
      if (const ConfigValue* value = Find(settings, "network." + field.key); value != nullptr || base != nullptr) {
        return ErrorAt(value == nullptr ? *base : *value, "network", "is a table, and something else as well",
                       "a table stands alone: remove the other keys of network");
      }
    }
    TIDEMARK_ASSIGN(network.shape, ReadTable(*table, settings));
    return Done{};
  }
  for (const Field<Table>& field : TableFields()) {
    if (const ConfigValue* value = Find(settings, "network." + field.key)) {
      return ErrorAt(*value, "network." + field.key, "is said of a table, but the network is none", "remove the key");
    }
  }
  auto& decoder = std::get<Decoder>(network.shape);
  for (const Field<Decoder>& field : DecoderFields()) {
    const std::string key = "network." + field.key;
    if (const ConfigValue* value = Find(settings, key)) {
      TIDEMARK_TRY(ReadField(field, decoder, *value, key));
    }
  }
  if (base == nullptr) {
    return Complete(decoder, settings, "network", place);
  }
  if (decoder.IsLatent() && !settings.contains("network.kv_heads")) {
    decoder.kv_heads = decoder.heads;
  }
  return Done{};
}

}  // namespace

Result<Network> ReadNetwork(const Settings& settings, const std::string& folder,
                            std::map<std::string, std::string>& sources) {
  const ConfigValue* base = Base(settings);
  const auto first = settings.lower_bound("network.");
  if (base == nullptr && (first == settings.end() || !first->first.starts_with("network."))) {
    return BadInput("the job has no network", "add `network: llama-3-8b`, or another of `tidemark list networks`");
  }
  Network network{"inline", Decoder{}, {}};
  std::string default_source = "default";
  if (base != nullptr) {
    const std::string place = fmt::format("{}: network", base->where);
    const Result<std::string> word = Word{}.Read(*base);
    if (!word) {
      return Explain(word.error(), *base, "network", "llama-3-8b");
    }
    const std::string& name = *word;
    Result<Network> found = FindNetwork(name, FolderOf(*base, folder));
    if (!found) {
      return found.error().where.empty() ? std::move(found).At(place) : std::move(found);
    }
    network = *std::move(found);
    default_source = fmt::format("{} ({})", name, base->source);
  }
  TIDEMARK_TRY(ReadShape(network, settings, base == nullptr ? first->second : *base));
  if (const ConfigValue* name = Find(settings, "network.name")) {
    TIDEMARK_ASSIGN(network.name, Word{}.Read(*name).At(fmt::format("{}: network.name", name->where)));
  }
  if (const ConfigValue* trainable = Find(settings, "network.trainable")) {
    TIDEMARK_ASSIGN(network.trainable, ReadTrainable(*trainable));
  }
  for (const std::string& key : JobKeys()) {
    if (key.starts_with("network.")) {
      const ConfigValue* value = Find(settings, key);
      sources[key] = value == nullptr ? default_source : value->source;
    }
  }
  return network;
}

}  // namespace tidemark
