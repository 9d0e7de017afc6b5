// It reads messages, each with its headers and its body, from its standard input. It prints what
// the SDK of CloudEvents makes of each.
import { readFileSync } from "node:fs";
import { HTTP } from "cloudevents";

for (const message of JSON.parse(readFileSync(0, "utf8"))) {
  const event = HTTP.toEvent(message);
  event.validate();
  console.log(JSON.stringify(event));
}
