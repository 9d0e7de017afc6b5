package cli

import (
	"strings"
	"testing"
)

func TestAsksForJSON(t *testing.T) {
	for args, want := range map[string]bool{
		"get -o json": true, "get -ojson": true, "get -o=json": true, "get --output json": true, "get --output=json": true,
		"get": false, "get json": false, "get -o": false, "get -o text": false, "get -o json -o text": false, "get -- -o json": false, "get --outputs=json": false,
	} {
		if got := asksForJSON(strings.Fields(args), ""); got != want {
			t.Errorf("%s: %t", args, got)
		}
	}
	if !asksForJSON([]string{"get"}, "json") || asksForJSON([]string{"get", "-otext"}, "json") {
		t.Error("LAPSE_OUTPUT counts unless a flag sets another format")
	}
}
