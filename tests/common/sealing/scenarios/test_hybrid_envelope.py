"""The hybrid envelope (ML-KEM-768 with X25519): its frozen bytes, who gets it, and that the older one is still read."""

from __future__ import annotations

import hashlib
from base64 import b85decode
from dataclasses import replace
from datetime import datetime
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.mlkem import MLKEM768PrivateKey

from pfl_common.errors import Refused
from pfl_common.identity import Authority, Keyring
from pfl_common.identity.cards import COORDINATOR, EnvelopeKeys, open_card
from pfl_common.sealing import bind, unwrap, wrap
from pfl_common.sealing.content_key import HYBRID_WRAP_BYTES, WRAP_BYTES, ContentKey
from pfl_common.sealing.frame_format import Tampered
from tests.common.sealing.scenarios.test_vectors import HEADERS, KEY, KEYS, WRAPS, card

HYBRID = replace(KEYS, lattice=MLKEM768PrivateKey.from_seed_bytes(bytes([5]) * 64))
PUBLIC_SHA256 = "120bc5fb90583af2dc7046c2aba38df128d8d683ffdc1d98c84d840d42ed6afa"
HYBRID_WRAPS = {
    "up": (
        "??TBC>Fu=R#lDyaU3^cefG_|42nKk<kE7d&VtCGpT^yc)g%MxaB(wtBR}Ctg9)DIyK04?Nf8B%)1b)0IxS?g*o<s(|cC&74@0y`}"
        "Nk^+(-kSN42(2Tk$_kRV&RRF&CBDngxsiR=<~uwA;h~v3I6a4pu@z?5naFyeIpK*&%hb4)-|MB*x6F7_?M&gsz2e?oF&l2kKRY}v"
        "d<*LNw()3&oZhuOf>UxTJf_h~tU)MFrfEUH?VfurwBss#B2n-e1BkKKr7QX!vbQq0?J&GUgzAI`(cS9<``4m`tSQiTJ;67;B$PgU"
        "a)b&0xGlfjJQ;=VvqUBuKB-z+zT2T5xU3`v^CXOGAJXse-x4w1b=mj0z0)*hGI|D!cDXvWJ`7lHv{zPY21(gy6#~l!CGEPpWvr5o"
        "G1>L9PmUumE|G+uyJiy(bSa@yZQUGNoS3s$@7)$JfeR@$js>F^02%RF$PqqSwX-8%vA^aYmjcvOZA<*~q@JtTn$@Wmh;4gx3&?Sk"
        "l|YDdTjayfA6d_Ox@2=mL&-D0M{C7Jf#F8*$ot<E?~Fzqk<}!0%%()5wz8#%fA3@~_DsJ!UH#6-GWy2}=P$##YyDiaHL}S(2nwnp"
        "R{cdNszDddG_oh}Rkgt&**iN)gB3^y7QjNkyGw{5V&)kqa1Cy05!OOwg1yvjEGmgq`;3Qimy>JXizVm~y8;y&4xAOe-HZ~(Z+c3E"
        "dFdehm*N+i6`d=zBiOs8EN0K}z(d;6PUZHOo^Gb=A0Mi}pPYw-tUp{iAp?GS@eAWW`{=mUa49L2RUhX@F^&6pt_jahz3$gfYc61F"
        "TJv%BAl%7buXE-EXJMf^*^0+W5TPjH;I5S)bdlsnn370Zw2*&Q=}W5Z3$X3kT|)%Pfwd7(<&x(K$-vvR==oiH<aWDcSPCeO+`RHA"
        "G}$-Xw_d%C<jlS7tqpNWKMlYgw2;p%9#{ef?rPIzBR5jX>QQo%m_-=kk?`SM#PY7hd4mdlS#vM(V`q;+NZCg}9BDi7&4)+qVv+(@"
        "JMGNQm*m}TuK-HmL*5CWU7pg=YhOV8p}^z4A7bAes9byr3~PZ)kTR#aUThQVFYQrT_!szPWx=Uur1ZLs(>^#`Uv*s4i(Z9jw)pqm"
        "Pk!tFB2{_}%{%aM?Mo2W*SwDsXI`47T@OJt(`-VPC+w*fjr(*CWf>n66jRaszTr*FqS;*h*h0GsgB_$2EYGwp51ynB_eHUiaS*V_"
        "3CT@2NG{ENHkHmUha$ya2gFDd@piSk@&;GrDj^=I6S@qh&496+-*9u_jdDx+xla(ZlqVVJa<P|Oxq4F`1&7@N!lNo<$AVqc8o*ww"
        "<e?+x7>8l9*uPJ3!o+>5=Hg}{Q}^@4nQW^=qpJQV;BpDxGJRmR<Xn72h3gdinY`+RTf>Ds?O@o~`n&|H_wklc-uCoSrzXDcZ#z3W"
        "N?Digw*R)DKO-YaK_HI3DBd2i;BGl!!yhloTGnDenR}YH#GhCG7xEUaGUGC}"
    ),
    "down": (
        "y~w9-t~Qzp6?=x%6g+P3i%i}gm3(UsJ+zx$(f1UOOa=3@U#emVHlY$)=Wxsdlmr9hk2;&#LTh~4B`}G=9@C4KSE_bEIrpcKFt67E"
        "wG*xT2L94m(z%JjaH$Pi&41l2NLu>-4v(Eq$KF=84!sDHH{rP*dGFJekQv28<<TkmRadHIZFU1+`Gbjm*P<5o6Hij6gFMW$!6LA9"
        "iPBUu6SpZYmlXJG@IfwjNMOsvLG=bgC;WdRW4B{_Vp>llI9l>;LzP^k%-KRQIUb;*lVLsg)V*;|IiWXG=M<*JoiG+Z%XloS30D|f"
        "Lc%9NETKxQTYSs2%9Sn_EFrbuR}ioiRDr@DO}O--d~G@(s~fqcvD4A$8?OcAtUNIdZ{)xL?#sJqn{1i^_hRHO`;6}2*K5lz>{aZ*"
        "L&5gD^$dk`DrL0`1g0`bXi0oZZZCqK{fdlCevr`D#-KI^u}C}B3V|s+0%D40Vhz>*LxGU2X@Eyf2gk;&4G%?(9?R1*sZ4fJt%93q"
        "4Em(o!#M!KM17xxX>oEbN6BI=uF2QtqX5?S-aH){&Cg)w%PwjltZ=kQ;^ov-(p?mR<yy#nqb)qb3K$&mSLi%(D_bh>kJ3y#m-kL&"
        "_xnjGifb9M&$icD@5zSFxs{+}7e|fjaxG<4{M&5Qie^6A27Pn$N^b)lC|JI~9x7k^IY9}&fiGnv%$%ndBivwC8H-J3zsKhKP4Aj5"
        "PYS3%hCdmoXwj7)z_r~O59MR_)({!0Q9qYrD&VG@4}l@`7Vd-PBkC6R4s$DTA0n=FiXnwno^e5@xRLAtwLu*#aFT`eQOykItlJ#x"
        "Tr<U^prIq!Fq`jWb8B5V5rW^+?X?J!lSzUtCV4=%9<<g3D<=lRrD(-J1T?|<8jt=RDnDBXtq5&G7s^m)w#<<!)Z=S;Vui-B%vjXj"
        "(o3}scLavoYk``7kQ4(k#7CwJTUTeN`kj<U9mA&zMk!taY5Xyr<*0*m76b_-uvbyCudla8R!6$--jA!TSHxPF>yS1hP@000+4js{"
        "t4;M)j^ftST9(S1vC~g<A{!kQnpcEeN+uFvR2qWonwtd>>b*%9ic5pyB0?w%Q<ZRp{cxQprAM%tTs||qV8IQs#ORzJfXP-PZp1yE"
        "<|^ElH&;otYdsiKoCTvlF9po|vZvp7nuY>!x}uPUQ|e3T*N{)bsSjIpfQQ3g-#+IQ!hsY=jnwe#;RWTH(#)tJxnq7hMUL3VTA1{f"
        "EOQQ)&##CEW8gasvFNb#ZTTA}{J(%v4Q(HTreaU#tPi_Z(o|o8gRtK}qpmt#?o1MzLQl6)<!V_mgGx5$*3X>&TI~&$jU&lZI3MeW"
        "hJP3L8|3cV>?l6Y7hXxkX639FU#1~=fM845NrMWOl1%YSrvn+@uzE7pwfnzbfFR|Y?j;f?&Ql->QDKY`5A-R!C>d+`)EcVJ^)667"
        "MDEq;w3<(9x&y;W2TWZI&Jm75G27^lHh@Ow)j-hkK(nDQC<!QBRZ3JSV<r@p"
    ),
}
NAME = "hospital_a"


@pytest.mark.parametrize("way", ["up", "down"])
def test_hybrid_wraps_are_frozen(way: str) -> None:
    """A kept wrap opens with kept keys, and for no other header, name or key."""
    assert PUBLIC_SHA256 == hashlib.sha256(HYBRID.shown()[2]).hexdigest()
    kept, header_hash = b85decode(HYBRID_WRAPS[way]), bind(HEADERS[way]).hash
    assert HYBRID_WRAP_BYTES == len(kept)
    assert KEY == unwrap(kept, HYBRID, name=NAME, header_hash=header_hash)._raw
    other = replace(HYBRID, lattice=MLKEM768PrivateKey.from_seed_bytes(bytes([6]) * 64))
    elsewhere = replace(HYBRID, receiving=EnvelopeKeys.generate().receiving)
    for keys, name, bound in (
        (HYBRID, NAME, bytes(32)),
        (HYBRID, "hospital_b", header_hash),
        (other, NAME, header_hash),
        (elsewhere, NAME, header_hash),
        (KEYS, NAME, header_hash),
    ):
        with pytest.raises(Tampered):
            unwrap(kept, keys, name=name, header_hash=bound)


@pytest.mark.parametrize("way", ["up", "down"])
def test_the_older_envelope_is_still_read(way: str) -> None:
    """Keys that got a third one open what was sealed before."""
    kept, header_hash = bytes.fromhex(WRAPS[way]), bind(HEADERS[way]).hash
    assert KEY == unwrap(kept, HYBRID, name=NAME, header_hash=header_hash)._raw


def test_who_shows_a_key_gets_the_hybrid_envelope() -> None:
    """And nobody else: an older site could not open it."""
    key, plain, hybrid = ContentKey(KEY), card(NAME), replace(card(NAME), lattice=HYBRID.shown()[2])
    assert WRAP_BYTES == len(wrap(key, plain, header_hash=bytes(32)))
    wrapped = wrap(key, hybrid, header_hash=bytes(32))
    assert HYBRID_WRAP_BYTES == len(wrapped)
    assert KEY == unwrap(wrapped, HYBRID, name=NAME, header_hash=bytes(32))._raw
    with pytest.raises(Tampered):
        unwrap(wrapped[:-1] + bytes([wrapped[-1] ^ 1]), HYBRID, name=NAME, header_hash=bytes(32))
    with pytest.raises(Tampered):
        wrap(key, replace(hybrid, lattice=b"\xff" * 1184), header_hash=bytes(32))


def test_cards_carry_the_third_key_where_it_is_asked_for(tmp_path: Path) -> None:
    """A site's card has it if the coordinator has shown one; cards without one are what they always were."""
    now = datetime.fromisoformat("2030-05-17T12:00:00+00:00")
    authority = Authority.open_or_create(tmp_path / "federation", now=now)
    keyring = Keyring.open(tmp_path / "site")
    csr, federation = keyring.csr(NAME), authority.federation_id
    keyring.store(authority.sign_site(csr, NAME, now=now), authority.ca_pem)
    plain = authority.sign_card(keyring.card_request(NAME, federation), csr, name=NAME, now=now)
    before = keyring.envelope_keys().public()
    keyring.store_card(plain)
    assert b"lattice" not in plain
    assert b"lattice" not in authority.coordinator_card(now=now)
    asked = keyring.card_request(NAME, federation, hybrid=True)
    keyring.store_card(authority.sign_card(asked, csr, name=NAME, now=now))
    assert authority.card_of(NAME, now=now).keys == keyring.envelope_keys().shown()
    assert before == Keyring.open(tmp_path / "site").envelope_keys().public()
    assert 1184 == len(Keyring.open(tmp_path / "site").envelope_keys().shown()[2])
    own = open_card(authority.coordinator_card(now=now, hybrid=True), authority.ca_pem)
    assert (COORDINATOR, authority.coordinator_keys().shown()) == (own.name, own.keys)
    assert b"lattice" not in authority.coordinator_card(now=now), "the operator went back to the older one"
    spoilt = plain.replace(b'"name"', b'"lattice":"00","name"')
    with pytest.raises(Refused):
        open_card(spoilt, authority.ca_pem)
