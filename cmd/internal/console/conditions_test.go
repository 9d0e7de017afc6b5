package console

import (
	"slices"
	"testing"
)

// TestConditions: the field of a query has a condition on each line, or several with spaces between them.
func TestConditions(t *testing.T) {
	for text, want := range map[string][]string{
		"":                             nil,
		" \r\n\n":                      nil,
		"customer=c1":                  {"customer=c1"},
		"customer=c1 price>=10":        {"customer=c1", "price>=10"},
		"customer=c1\r\nprice>=10\r\n": {"customer=c1", "price>=10"},
		"price >= 10  price < 20":      {"price >= 10", "price < 20"},
		"name=Ada Lovelace year=1815":  {"name=Ada Lovelace", "year=1815"},
		`name="a b=c" seat.row^=A`:     {`name="a b=c"`, "seat.row^=A"},
		`name="a \" b=c" x=1`:          {`name="a \" b=c"`, "x=1"},
		"status=new, paid open=true":   {"status=new, paid", "open=true"},
		"url=http://a?b=c":             {"url=http://a?b=c"},
		"customer":                     {"customer"},
		"customer c1 price=10":         {"customer c1", "price=10"},
		"=c1":                          {"=c1"},
		"/a b=1":                       {"/a", "b=1"},
	} {
		if got := conditions(text); !slices.Equal(got, want) {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}
