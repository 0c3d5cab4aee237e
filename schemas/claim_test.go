package schemas_test

import (
	"bytes"
	"encoding/hex"
	"reflect"
	"testing"
	"time"

	"github.com/google/uuid"
	"pgregory.net/rapid"

	"lapse/schemas"
)

func exampleClaim() schemas.Claim {
	return schemas.Claim{
		SystemIdentifier: 7381000000000000001, DatabaseOID: 16384, History: 2, Timeline: 3, XID: 745,
		StartedAt: time.Date(2026, 11, 21, 10, 15, 30, 123456000, time.UTC),
		Batch:     uuid.MustParse("0198f1d0-0000-7000-8000-000000000001"),
		PolicyID:  1, Policy: "sessions-30d", PolicyVersion: 3,
		Run:         uuid.MustParse("0198f1d0-0000-7000-8000-000000000002"),
		Cutoff:      time.Date(2026, 11, 21, 10, 15, 30, 0, time.UTC),
		HoldVersion: 5, Target: 16390, Cascades: []uint32{16400, 16410}, Functions: exampleDigest(),
	}
}

// exampleDigest is 01 02 03 … 20.
func exampleDigest() (d schemas.Digest) {
	for i := range d {
		d[i] = byte(i + 1)
	}
	return d
}

// The bytes are a contract between an executor and an auditor of different versions.
func TestTheCanonicalBytesOfAClaimNeverChange(t *testing.T) {
	c := exampleClaim()
	const want = "0000000d6c617073652d636c61696d2d33666e9464cf28800100004000000000020000000300000000000002e9000660c6a3eab6c00198f1d0000070008000000000000001000000010000000c73657373696f6e732d333064000000030198f1d0000070008000000000000002000660c6a3e8d48000000000000000050000400600000002000040100000401a0102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f20"
	if got := hex.EncodeToString(c.Canonical()); got != want {
		t.Errorf("canonical bytes changed:\n got %s\nwant %s", got, want)
	}
}

func drawClaim(t *rapid.T, label string) schemas.Claim {
	micros := rapid.Int64Range(0, 4102444800000000)
	return schemas.Claim{
		SystemIdentifier: rapid.Uint64().Draw(t, label+" system"), DatabaseOID: rapid.Uint32().Draw(t, label+" database"),
		History: schemas.History(rapid.Uint32().Draw(t, label+" history")), Timeline: schemas.Timeline(rapid.Uint32().Draw(t, label+" timeline")),
		XID: schemas.XID(rapid.Uint64().Draw(t, label+" xid")), StartedAt: time.UnixMicro(micros.Draw(t, label+" started")).UTC(),
		Batch: uuid.UUID(rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, label+" batch")), PolicyID: schemas.PolicyID(rapid.Int32().Draw(t, label+" id")),
		Policy: schemas.PolicyName(rapid.String().Draw(t, label+" policy")), PolicyVersion: schemas.PolicyVersion(rapid.Int32().Draw(t, label+" version")),
		Run:    uuid.UUID(rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, label+" run")),
		Cutoff: time.UnixMicro(micros.Draw(t, label+" cutoff")).UTC(), HoldVersion: schemas.HoldVersion(rapid.Int64().Draw(t, label+" hold")),
		Target: rapid.Uint32().Draw(t, label+" target"), Cascades: rapid.SliceOfN(rapid.Uint32(), 1, 4).Draw(t, label+" cascades"),
		Functions: schemas.Digest(rapid.SliceOfN(rapid.Byte(), 32, 32).Draw(t, label+" functions")),
	}
}

func TestChangingAnyFieldOfAClaimBreaksItsMAC(t *testing.T) {
	key := schemas.Key(bytes.Repeat([]byte{7}, schemas.MinKey))
	rapid.Check(t, func(t *rapid.T) {
		signed, other := drawClaim(t, "signed"), drawClaim(t, "other")
		mac := signed.MAC(key)
		if !signed.Verify(key, mac) {
			t.Fatal("a claim does not verify under its own MAC")
		}
		fields := reflect.TypeFor[schemas.Claim]()
		for i := range fields.NumField() {
			changed := signed
			reflect.ValueOf(&changed).Elem().Field(i).Set(reflect.ValueOf(other).Field(i))
			if reflect.DeepEqual(changed, signed) {
				continue
			}
			if changed.Verify(key, mac) {
				t.Fatalf("changing %s left the MAC valid", fields.Field(i).Name)
			}
		}
	})
}

func TestAShortKeyVerifiesNothing(t *testing.T) {
	c := exampleClaim()
	short := schemas.Key("short")
	if c.Verify(short, c.MAC(short)) {
		t.Error("a key of five bytes was accepted")
	}
}
