package cli

import "github.com/alecthomas/kong"

// examples has one example of each command, for its help.
var examples = map[string]string{
	"serve":           "lapse serve --nats nats://nats1:4222 --redis redis://redis1:6379",
	"demo":            "lapse demo --for 1m",
	"health":          "lapse health --http 127.0.0.1:7070",
	"version":         "lapse version",
	"backup":          "lapse backup lapse-monday",
	"restore":         "lapse restore lapse-monday --data restored",
	"begin-anew":      "lapse begin-anew --accept-lost-events",
	"promote":         "lapse promote --from a",
	"forget-follower": "lapse forget-follower c",
	"demote":          "lapse demote --save unmirrored.ndjson",
	"completion":      "source <(lapse completion bash)",
	"help":            "lapse help put",

	"config":      "lapse config orders --default-ttl 1h --warn-before 5m --index customer --index seat.row",
	"drop":        "lapse drop orders --yes",
	"apply":       "lapse apply -f collections.yaml --dry-run",
	"pause":       "lapse pause orders",
	"resume":      "lapse resume --all",
	"collections": "lapse collections",

	"put":      `lapse put orders 42 '{"item":"tea"}' --ttl 30m`,
	"create":   `lapse create orders 42 '{"item":"tea"}'`,
	"replace":  `lapse replace orders 42 '{"item":"cup"}' --if-match 17`,
	"schedule": `lapse schedule mail.send --at 18:00 '{"to":"ada@example.com"}'`,
	"patch":    `lapse patch orders 42 '{"paid":true}' --keep-clock`,
	"touch":    "lapse touch sessions --where user=7",
	"delete":   "lapse delete orders --where user=7 --dry-run",
	"import":   "lapse import orders orders.ndjson --op create --expires-at-field until",

	"get":      "lapse get orders 42",
	"list":     "lapse list orders --where customer=c1 --where 'price>=10' --order -price",
	"export":   "lapse export orders orders.ndjson",
	"count":    "lapse count orders --where status=new,paid",
	"forecast": "lapse forecast orders --within 7d",
	"watch":    "lapse watch orders --since 1h",
	"forward":  "lapse forward orders https://example.com/hooks --secret-file secret",
	"archive":  "lapse archive orders ./events --since 7d",
	"status":   "lapse status",
	"snapshot": "lapse snapshot --forget",

	"forgotten": "lapse forgotten visitors v1 --ended 2026-01-31T12:00:00Z",
}

// addExamples ends the help of each command with its example.
func addExamples(app *kong.Node) {
	for _, command := range app.Children {
		if example := examples[command.Name]; example != "" {
			if command.Detail != "" {
				command.Detail += "\n\n"
			}
			command.Detail += "Example:\n\n    " + example
		}
	}
}
