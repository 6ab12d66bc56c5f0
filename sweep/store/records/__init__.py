"""What a store holds, typed: one frozen class per kind of record."""
