package entries_test

import (
	"strings"
	"testing"

	"github.com/seed18712806/lapse/sink/entries"
)

func TestCheckPointer(t *testing.T) {
	const use = "use a JSON pointer such as /customer or /seat/row, with at most 16 names and 255 bytes."
	const escape = " that is not ~0 or ~1: write ~0 for ~ and ~1 for / in a name."
	for pointer, want := range map[string]string{
		"/":                            "",
		"//":                           "",
		"/a b/~0~1/é/0/-":              "",
		"/" + strings.Repeat("x", 254): "",
		strings.Repeat("/x", 16):       "",
		"":                             "the pointer is empty: " + use,
		"a":                            `pointer "a" does not begin with /: ` + use,
		"#/a":                          `pointer "#/a" does not begin with /: ` + use,
		"/\xff":                        `pointer "/\xff" is not UTF-8: ` + use,
		"/" + strings.Repeat("x", 255): `pointer "/` + strings.Repeat("x", 59) + `..." is 256 bytes long: ` + use,
		strings.Repeat("/x", 17):       `pointer "` + strings.Repeat("/x", 17) + `" has 17 names: ` + use,
		"/~":                           `pointer "/~" has a ~` + escape,
		"/a~2b":                        `pointer "/a~2b" has a ~` + escape,
		"/~0~/":                        `pointer "/~0~/" has a ~` + escape,
	} {
		got := ""
		if err := entries.CheckPointer(pointer); err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%.60s:\n got %s\nwant %s", pointer, got, want)
		}
	}
}

func TestPointerOf(t *testing.T) {
	for text, want := range map[string]string{
		"customer":  "/customer",
		"seat.row":  "/seat/row",
		"a~b.0":     "/a~0b/0",
		"/seat/row": "/seat/row",
		"/a.b":      "/a.b",
		"/":         "/",
		"":          "the name is empty: write a name such as customer, seat.row or /seat/row.",
		"seat/row":  `"seat/row" has a / but does not begin with it: write "/seat/row".`,
		"a..b":      `"a..b" has an empty name: write names with a dot between them, such as seat.row.`,
		".a":        `".a" has an empty name: write names with a dot between them, such as seat.row.`,
		"/~":        entries.CheckPointer("/~").Error(),
	} {
		got, err := entries.PointerOf(text)
		if err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%s:\n got %s\nwant %s", text, got, want)
		}
	}
}

func TestParseOrder(t *testing.T) {
	for order, want := range map[string]entries.Order{
		"":          {},
		"deadline":  {ByDeadline: true},
		"id":        {ByID: true},
		"/price":    {Pointer: "/price"},
		"-/price":   {Pointer: "/price", Descending: true},
		"/deadline": {Pointer: "/deadline"},
	} {
		if got, err := entries.ParseOrder(order); err != nil || got != want {
			t.Errorf("%s: %+v, %v", order, got, err)
		}
	}
	const use = " is not valid: use deadline, id, a pointer such as /price, or -/price for the greatest first."
	for order, want := range map[string]string{
		"price":     `order "price"` + use,
		"-deadline": `order "-deadline"` + use,
		"-/~":       `order "-/~": ` + entries.CheckPointer("/~").Error(),
	} {
		if _, err := entries.ParseOrder(order); err == nil || err.Error() != want {
			t.Errorf("%s: %v", order, err)
		}
	}
}

func TestOrderOf(t *testing.T) {
	for text, want := range map[string]string{
		"":          "",
		"deadline":  "deadline",
		"id":        "id",
		"/id":       "/id",
		"price":     "/price",
		"-price":    "-/price",
		"-seat.row": "-/seat/row",
		"-/price":   "-/price",
		"-/id":      "-/id",
		"-id": `order "-id" is not valid: id has one direction only. ` +
			"For a member id of the documents write -/id.",
		"-":   `order "-": the name is empty: write a name such as customer, seat.row or /seat/row.`,
		"a/b": `order "a/b": "a/b" has a / but does not begin with it: write "/a/b".`,
	} {
		got, err := entries.OrderOf(text)
		if err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%s:\n got %s\nwant %s", text, got, want)
		}
	}
}
