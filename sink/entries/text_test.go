package entries_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/seed18712806/lapse/sink/entries"
)

func TestParseText(t *testing.T) {
	for text, want := range map[string][2]string{
		"customer=c1":       {"/customer", `"c1"`},
		"price>=10":         {"/price", `{"gte":10}`},
		"price <= 10.5":     {"/price", `{"lte":10.5}`},
		"price>1e3":         {"/price", `{"gt":1e3}`},
		"price<-1":          {"/price", `{"lt":-1}`},
		"name>=b":           {"/name", `{"gte":"b"}`},
		"seat.row^=A":       {"/seat/row", `{"prefix":"A"}`},
		"code^=12":          {"/code", `{"prefix":"12"}`},
		"name^=Smith, J":    {"/name", `{"prefix":"Smith, J"}`},
		`name^="Smith, "`:   {"/name", `{"prefix":"Smith, "}`},
		"status=new,paid":   {"/status", `{"in":["new","paid"]}`},
		"x= 1 , a b,null":   {"/x", `{"in":[1,"a b",null]}`},
		`x="a,b"`:           {"/x", `"a,b"`},
		`x="a,b", "c" ,d`:   {"/x", `{"in":["a,b","c","d"]}`},
		`x="a", "b,c"`:      {"/x", `{"in":["a","b,c"]}`},
		`x=""`:              {"/x", `""`},
		"open=true":         {"/open", "true"},
		"open=True":         {"/open", `"True"`},
		"note=null":         {"/note", "null"},
		`/seat/row="1"`:     {"/seat/row", `"1"`},
		"zip=010":           {"/zip", `"010"`},
		"x=a=b":             {"/x", `"a=b"`},
		"x=a<b>&":           {"/x", `"a<b>&"`},
		"x=[draft]":         {"/x", `"[draft]"`},
		`x={}`:              {"/x", `"{}"`},
		"a^b=c":             {"/a^b", `"c"`},
		`x="="`:             {"/x", `"="`},
		`x=say "hi"`:        {"/x", `"say \"hi\""`},
		"/a~1b/c.d=é\u2028": {"/a~1b/c.d", "\"é\\u2028\""},
	} {
		pointer, condition, err := entries.ParseText(text)
		if err != nil || pointer != want[0] || string(condition) != want[1] {
			t.Errorf("%s is %s %s, %v, want %s", text, pointer, condition, err, want)
		}
	}
}

func TestParseText_Wrong(t *testing.T) {
	const use = "write a name, one of = >= <= > < ^= and a value, such as customer=c1, price>=10 or seat.row^=A."
	const quotes = " Put a value that begins so in quotes."
	const empty = ` has an empty value beside a comma: write "" for the empty text, and put a value with a comma in quotes.`
	const none = ": the name is empty: write a name such as customer, seat.row or /seat/row."
	for text, want := range map[string]string{
		"":                                `the condition "" has no operator: ` + use,
		"customer":                        `the condition "customer" has no operator: ` + use,
		"customer^c":                      `the condition "customer^c" has no operator: ` + use,
		"x\xff=1":                         `the condition "x\xff=1" is not UTF-8: ` + use,
		"x!=1":                            `the condition "x!=1" has the operator !=: ` + use,
		"x==1":                            `the condition "x==1" has an operator after the operator: ` + use + quotes,
		"x=>1":                            `the condition "x=>1" has an operator after the operator: ` + use + quotes,
		"x<>1":                            `the condition "x<>1" has an operator after the operator: ` + use + quotes,
		"x= ":                             `the condition "x= " has no value: write "" for the empty text.`,
		"=1":                              `the condition "=1"` + none,
		"seat/row=1":                      `the condition "seat/row=1": "seat/row" has a / but does not begin with it: write "/seat/row".`,
		"x=a,,b":                          `the condition "x=a,,b"` + empty,
		"x=a,":                            `the condition "x=a,"` + empty,
		`x="a",`:                          `the condition "x=\"a\","` + empty,
		`x="a`:                            `the condition "x=\"a" has a " without its end: write a JSON string, such as "a, b".`,
		`x="a"b`:                          `the condition "x=\"a\"b" has "b" after the quotes: write a comma, or put the whole value in quotes.`,
		"price>=10,5":                     `the condition "price>=10,5" has 2 values: only = takes several. Put a value with a comma in quotes.`,
		"price>=null":                     `the condition on "/price" has a gte that is null: use a number or a string.`,
		"price=1e999":                     `the condition on "/price" has the number 1e999: use one that a 64-bit floating point number can be.`,
		"x=" + strings.Repeat("y", 256):   `the condition on "/x" has a string that is too long: use at most 255 bytes.`,
		"x=1" + strings.Repeat(",1", 100): `the condition on "/x" has an in with 101 values: use 1 to 100.`,
	} {
		if _, _, err := entries.ParseText(text); err == nil || err.Error() != want {
			t.Errorf("%.60s:\n got %v\nwant %s", text, err, want)
		}
	}
}

func TestMerge(t *testing.T) {
	for texts, want := range map[string]map[string]string{
		"":                             {},
		"customer=c1":                  {"/customer": `"c1"`},
		"customer=c1; price>=10; x^=A": {"/customer": `"c1"`, "/price": `{"gte":10}`, "/x": `{"prefix":"A"}`},
		"price>=10; price<20":          {"/price": `{"gte":10,"lt":20}`},
		"price<20; a.b=1; /price>10":   {"/price": `{"gt":10,"lt":20}`, "/a/b": "1"},
	} {
		got, err := merge(texts)
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Errorf("%s: %v (-want +got):\n%s", texts, err, diff)
		}
	}
	const same = " are about the same value: give one condition, or the two ends of a range such as price>=10 and " +
		"price<20."
	for texts, want := range map[string]string{
		"x=1; x=2":      `"x=1" and "x=2"` + same,
		"x>1; /x>=2":    `"x>1" and "/x>=2"` + same,
		"x>1; x<3; x<2": `"x>1" and "x<2"` + same,
		"x>1; x=2":      `"x>1" and "x=2"` + same,
		"x^=a; x<b":     `"x^=a" and "x<b"` + same,
		"x>1; x<a":      `the condition on "/x" has a number and a string as the ends of its range: use two numbers or two strings.`,
		"x>1; y":        `the condition "y" has no operator: write a name, one of = >= <= > < ^= and a value, such as customer=c1, price>=10 or seat.row^=A.`,
		"a=1; b=1; c=1; d=1; e=1; f=1; g=1; h=1; i=1": "there are 9 conditions: use at most 8.",
	} {
		if _, err := merge(texts); err == nil || err.Error() != want {
			t.Errorf("%s:\n got %v\nwant %s", texts, err, want)
		}
	}
}

// merge merges texts with "; " between them.
func merge(texts string) (map[string]string, error) {
	var all []string
	if texts != "" {
		all = strings.Split(texts, "; ")
	}
	where, err := entries.Merge(all)
	if err != nil {
		return nil, err
	}
	got := map[string]string{}
	for pointer, condition := range where {
		got[pointer] = string(condition)
	}
	return got, nil
}

// FuzzText: any text is an error of one line, or a condition that the server accepts; alone it is what Merge makes of
// it.
func FuzzText(f *testing.F) {
	for _, s := range []string{"customer=c1", "price>=10", `x="a,b",c`, "seat.row^=A", "x!=1", `/a~1b="`, "x=1e999"} {
		f.Add(s, "price<20")
	}
	f.Fuzz(func(t *testing.T, one, two string) {
		pointer, condition, err := entries.ParseText(one)
		if err != nil {
			if s := err.Error(); !utf8.ValidString(s) || strings.Contains(s, "\n") {
				t.Errorf("%q: the error is %q", one, s)
			}
		} else if _, err := entries.ParseWhere(map[string][]byte{pointer: condition}); err != nil {
			t.Errorf("%q is %s %s: %v", one, pointer, condition, err)
		}
		where, mergeErr := entries.Merge([]string{one})
		if (err == nil) != (mergeErr == nil) || err == nil && string(where[pointer]) != string(condition) {
			t.Errorf("%q is %q %q, %v, and merged %q, %v", one, pointer, condition, err, where, mergeErr)
		}
		if where, err := entries.Merge([]string{one, two}); err == nil {
			if _, err := entries.ParseWhere(where); err != nil {
				t.Errorf("%q and %q are %q: %v", one, two, where, err)
			}
		}
	})
}
