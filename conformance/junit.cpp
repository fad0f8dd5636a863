// The report in the XML that continuous-integration servers read.
#include <cstdio>

#include "conformance/suite.h"

namespace anyaccel::conformance {
namespace {

// XML 1.0 cannot represent most control characters; everything except printable ASCII becomes '?', so that a driver's
// text cannot break the file.
std::string escaped(std::string_view text) {
  std::string result;
  for (const char character : text) {
    switch (character) {
      case '&': result += "&amp;"; break;
      case '<': result += "&lt;"; break;
      case '>': result += "&gt;"; break;
      case '"': result += "&quot;"; break;
      case '\n': result += "&#10;"; break;
      case '\t': result += ' '; break;
      default: result += character >= ' ' && character <= '~' ? character : '?';
    }
  }
  return result;
}

std::string seconds(double milliseconds) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.6f", milliseconds / 1000);
  return text;
}

}  // namespace

std::string junit_xml(const Report& report, std::string_view suite_name) {
  size_t failed = 0;
  size_t skipped = 0;
  double total = 0;
  for (const CaseResult& result : report.cases) {
    failed += result.outcome == Outcome::fail;
    skipped += result.outcome == Outcome::unsupported || result.outcome == Outcome::unavailable;
    total += result.milliseconds;
  }
  std::string xml = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuite name=\"" + escaped(suite_name) +
                    "\" tests=\"" + std::to_string(report.cases.size()) + "\" failures=\"" + std::to_string(failed) +
                    "\" errors=\"0\" skipped=\"" + std::to_string(skipped) + "\" time=\"" + seconds(total) + "\">\n";
  for (const CaseResult& result : report.cases) {
    xml += "  <testcase classname=\"" + escaped(result.group) + "\" name=\"" + escaped(result.name) + "\" time=\"" +
           seconds(result.milliseconds) + "\">";
    const std::string message = escaped(result.message);
    if (result.outcome == Outcome::fail) {
      xml += "<failure message=\"" + message + "\"/>";
    } else if (result.outcome != Outcome::pass) {
      xml += "<skipped message=\"" + std::string(outcome_name(result.outcome)) + ": " + message + "\"/>";
    } else if (!message.empty()) {
      xml += "<system-out>" + message + "</system-out>";
    }
    xml += "</testcase>\n";
  }
  return xml + "</testsuite>\n";
}

}  // namespace anyaccel::conformance
