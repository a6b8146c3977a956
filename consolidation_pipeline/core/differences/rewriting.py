"""Rewriting of phrases that say one thing in several forms, in scripts without blanks: 5名 is 5人, 五名成员 五个成员.

A rule is a pattern of the signs of a text and what stands in its place. A sign is what one piece has: a word of one
sign, a digit, ``#`` for a longer number, ``,`` for the end of a clause, ``.`` for that of a sentence, ``_`` for others.
"""

import re
from collections.abc import Sequence
from functools import cache

from consolidation_pipeline.core.differences.language import Language
from consolidation_pipeline.core.differences.language_loader import load_language
from consolidation_pipeline.core.differences.lexer import Piece

# What stands in the place of a match: groups of it, by their numbers, and signs.
Template = tuple[int | str, ...]
Rules = tuple[tuple[frozenset[str], re.Pattern[str], Template], ...]

_ZH_NUMBER = "[0-9#零一二两三四五六七八九十百千半]"
_ZH_PERIOD = "天|日|周|月|年|小时|星期|礼拜|季度|分钟"
# Classifiers that count the same, unless they begin another word: 条件, 项目, 一家人.
_ZH_CLASSIFIER = (
    "[位张台件本辆棵匹艘座栋封份项顶扇盏](?![子地人置于来身年月日期目额量面锁部构风阶椅谈数移])|条(?![件款例约目])|名(?![字单称额片])"
    "|只(?=[猫狗鸡鸭鹅鸟羊兔猪牛熊手脚眼耳鞋袜箱碗杯船虫小大])|架(?!构)|间(?![隔接])|所(?![有以在属谓需用])|支(?![付持出撑])"
    "|部(?![门分署长队件])|道(?![路理德歉具])|门(?=课)|家(?![人里庭长属务三])"
)
# Up to a number of times, in the same clause.
_ZH_TIMES = rf"(?=[^,.]{{0,12}}{_ZH_NUMBER}[次顿回遍])"
# Ends of what is done with an object: 将文件发送给, 将钥匙放在桌上.
_ZH_RESULT = "到|在|为|成|给|至|入|掉|完|好|了"
# Verbs before which 将 tells of the future where no subject stands before it.
_ZH_FUTURE = (
    "[在于会被由不要来近军就]|升级|迁移|部署|发布|上线|下线|重启|停止|开始|举行|推迟|取消|更换|切换|使用|采用|支持"
)
# What follows 使用 where it is a noun, or a verb without an object.
_ZH_USE = "[的了率者量权时后前中过期完费法]|说明|情况|方[法式]|手册|场景|条件|寿命"
_JA_NUMBER = "[0-9#一二三四五六七八九十百千]"
_JA_NOUN = "[_\u3005\u4e00-\u9fff]"
# Kana of potential stems and of the dictionary form, and verbs that have them.
_JA_POTENTIALS = (
    ("え", "う", "買扱払会言洗通習歌"),
    ("け", "く", "書歩描弾聞"),
    ("げ", "ぐ", "泳急防"),
    ("せ", "す", "話直消押戻移試渡返出貸探残通倒壊動隠許"),
    ("め", "む", "読飲住休頼"),
    ("べ", "ぶ", "選運呼学遊"),
    ("れ", "る", "乗帰送撮触作守登測取走座"),
)
_JA_SPAN = rf"{_JA_NUMBER}+(?:週|日|年|時|分|秒|か月|ヶ月|カ月)間?"

# Places in digits as in words, which are cues: 第2回.
_ORDINALS: tuple[tuple[str, str, Template], ...] = tuple(
    ("第", rf"第{digit}(?![0-9#,.年月日])", (f"第{word}",)) for digit, word in zip("123", "一二三", strict=True)
)

# A class of words of the language in a pattern.
_CLASS = re.compile(r"(?<!\?)<(\w+)>")

# By language: signs of which a text has one if a rule may apply, the pattern, and what stands in its place.
_RULES: dict[str, tuple[tuple[str, str, Template], ...]] = {
    "zh": (
        *_ORDINALS,
        ("块", rf"(?<={_ZH_NUMBER})块(?:钱|(?=[,.]|$))", ("元",)),
        ("名位", rf"(?<={_ZH_NUMBER})[名位](?=[,.]|$)", ("人",)),
        ("隔", rf"每隔(?={_ZH_NUMBER}+个?(?:分钟|秒|小时|毫秒|钟头))", ("每",)),
        ("了", r"(?<=[买看租借修写开画换])了([辆本场部杯份台件条])(?![地次来身人年月周例款目])", ("了一", 1)),
        (
            "位张台件本辆棵匹艘座栋封份项顶扇盏条名只架间所支部道门家",
            rf"(?<={_ZH_NUMBER[:-1]}这那该此哪每某几])(?<!第{_ZH_NUMBER})(?:{_ZH_CLASSIFIER})",
            ("个",),
        ),
        ("个", rf"(?<={_ZH_NUMBER})个(?=人(?![员们体工质事])|小时|钟头|星期|礼拜)", ()),
        ("期礼", r"(?<=[0-9#一二两三四五六七八九十几上下本])(?:星期|礼拜)(?![一二三四五六日天])", ("周",)),
        ("期礼", r"(?<=[下上本这])个(?:星期|礼拜)(?![一二三四五六日天])", ("周",)),
        # How often.
        ("每", r"每个?(?=(?:周|星期|礼拜)[一二三四五六日天])", ("逢",)),
        ("每", r"每个(?=小时|星期|礼拜|季度)", ("每",)),
        ("次顿回遍", rf"(?<![第前后另同有这那十百千零二三几])每?[一1]个?({_ZH_PERIOD}){_ZH_TIMES}", ("每", 1)),
        ("次顿回遍", rf"每({_ZH_NUMBER}+个?(?:{_ZH_PERIOD})){_ZH_TIMES}", (1,)),
        ("号", rf"(?<=月)({_ZH_NUMBER}+)号", (1, "日")),
        # 将 before the object of a verb is 把.
        ("将", rf"(?<=[请已经可以须需要应该别勿再先并])将(?!{_ZH_FUTURE})", ("把",)),
        ("将", rf"(?<![^,.])将(?!{_ZH_FUTURE})(?=[^,.]{{2,14}}?(?:{_ZH_RESULT}))", ("把",)),
        ("将", r"(?<![即必])将(?![要会])(?=[^,.]{2,16}了(?:[,.]|$))", ("把",)),
        # Amounts.
        ("分", rf"百分之({_ZH_NUMBER}+(?:点{_ZH_NUMBER}+)?)", (1, "％")),
        ("半", r"一个半(?:小时|钟头)", ("九十分钟",)),
        ("半", rf"(?<={_ZH_NUMBER[:-2]}])个半(?=小时|钟头)", ("半",)),
        ("以", r"(?<=以上)的(?=版本)", ()),
        ("或", rf"(?<={_ZH_NUMBER})或(?=以[上下])", ()),
        ("约概", r"(?:大约|大概|约)(需要|要)", (1, "约")),
        ("内", rf"({_ZH_NUMBER}+个?(?:{_ZH_PERIOD}|秒|公里|米|元|人))之?内", (1, "以内")),
        ("无", r"无(?![法需须论可用效线限关状头意辜聊奈数比非害常异误名人一不从疑私所息缝符力趣视])", ("没有",)),
        ("多", r"(?:(?:非常|十分|特别|相当)多|(?<=[人货车雨单事客])多)(?=[,.的]|$)", ("很多",)),
        ("好完", r"(?<![^,.])([^,.等没未待不]{0,12}?(?:<finished>))(?:完成|完毕|好)(?=了|[之以]?后|[,.]|$)", (1,)),
        ("左", rf"({_ZH_NUMBER}+[^,.{_ZH_NUMBER[1:-1]}]{{0,2}}?)左右", ("约", 1)),
        ("遍", r"(?<=[对认查看读听试])一遍", ()),
        # What is done with what.
        ("对", r"对([^,.对]{1,8}?)(?:进行|加以|予以|做|作)了?([^,.的了]{2})(?=了?(?:[,.]|$)|后|时|前|之)", (2, 1)),
        ("的", r"(?<![^,.])([^,.的]{2,5})的(<actions>)(?=[需要须必应可不由会后前时])", (2, 1)),
        ("完", r"(?<!已)完成(?=(?:<actions>)[之以]?后)", ()),
        ("给", r"(打电话|发邮件|发短信|发消息|发通知)给([^,.了]{1,6})(?=[,.]|$)", ("给", 2, 1)),
        ("跟同", r"[跟同](?=[^,.]{1,8}?(?:<joint>))", ("和",)),
        # What words mean together.
        ("外", r"除了?([^,.了]{1,10}?)[之以]?外(?![面部边国卖汇观来])", ("除了", 1)),
        ("起始", r"[从自]([^,.]{1,10}?)(?:起开始|起|开始)(?![床飞来动码初因])(?=[^,.])", ("从", 1, "起")),
        (
            "起始",
            rf"(?<![从自由于])((?:[下上本这]个?[周月]|[明今后]天|[明今]年|{_ZH_NUMBER}+[日号月点年]))(?:起开始|起|开始)(?![床飞来动码初因])(?=[^,.])",
            ("从", 1, "起"),
        ),
        ("据", r"根据(?=[^,.]{0,10}(?:合同|规定|要求|政策|协议|法律|计划|标准|流程|配置|文档|手册|说明))", ("按照",)),
        ("仅", r"仅(?=[^,.限]{1,6}[可能])", ("只有",)),
        ("非", r"非得?([^,.]{1,8})不可", ("必须", 1)),
        ("点", r"(?<!没)有点儿?(?![击名状赞])", ("有些",)),
        ("话", r"(?<![^,.])(?:如果|要是|假如|若)?([^,.]{2,14})的话", ("如果", 1)),
        ("以能可", r"(?<=最多|至多|至少|最少|只有)(?:可以|能够?|可(?!能))", ()),
        ("了", r"(<unable>)不了", ("无法", 1)),
        ("至到~", rf"(?<=[日号时点月年天周页个元分度%号层楼])[至~](?={_ZH_NUMBER})", ("到",)),
        ("有", rf"(?<![^,.])有({_ZH_NUMBER}+个?)([^,.的]{{2,6}})(?=[,.]|$)", (2, "有", 1)),
        # Before or behind the subject.
        (
            "实上前在今常般时近然果是如为于使",
            r"(?<![^,.])([^,.的了说想道觉认]{1,4})(<fronted>)(?![的是])",
            (2, 1),
        ),
        # What may be missing beside another word.
        ("只", r"(只有[^,.]{1,15}?)才?(?:能够?|可以|可(?!能))", (1,)),
        ("快", r"(?<![很更尽赶飞变])快(?![递捷速餐])(?=[^,.要]{1,6}了(?:[,.]|$))", ("快要",)),
        ("用", rf"(?:使用|采用|利用)(?!{_ZH_USE})(?=[^,.])", ("用",)),
        ("存", r"存在(?=[^,.]{1,12}(?:问题|漏洞|风险|错误|缺陷|故障|隐患))", ()),
        ("比", r"(?<=比)([^,.]{1,8}?)更", (1,)),
        ("订送寄发", r"(?<=[订送寄发])(?:往|去|到)(?=[^,.])", ("到",)),
        ("借", r"[从向跟问]([^,.]{1,8}?)借(?![给出])", ("从", 1, "借入")),
        ("跟", r"跟(?=[^,.]{1,6}?(?:一起|一同|一块))", ("和",)),
        # Steps.
        ("再", r"((?<![优原祖事])先(?![生进前])[^.]{2,40}?)(?<![不别勿])再(?![次度一三])", (1, "然后")),
        ("先", r"(?<![优原祖事首])先(?![生进前])(?=[^.]{2,40}然后)", ()),
        # Verbs of one sign, and 未.
        ("发", r"(?<![开出转分批群突])发(?=邮件|短信|消息|通知|验证码|周报|日报|月报|报告|文件|一份)", ("发送",)),
        ("降", rf"(?<![下升投空霜])降(?=了?{_ZH_NUMBER}|[到至])", ("下降",)),
        ("升", rf"(?<![上提])升(?=了?{_ZH_NUMBER}|[到至])", ("上升",)),
        ("建", r"(?<![创新搭组构])建(?=了?[一两]?个)", ("创建",)),
        ("未", r"(?<![尚从并仍还前])未(?![来必免婚知能曾尝定名])", ("没",)),
        ("负", r"负责(?=<actions>|<charged>)", ()),
        ("过", r"(?<![^,.])不过(?![是如了])", ("但",)),
        # Weekdays.
        ("周", r"周([一二三四五六日天])[,和与及]([一二三四五六日天])(?![个天月年点号日人])", ("周", 1, "和周", 2)),
        ("每", r"(?<=[一二三四五六日天][,和与及])每(?=周)", ()),
        # Where a thing is.
        ("放排落", r"(?:存放|摆放|放置|安排|坐落|(?<![开播投排释发下])放)(?=在)", ()),
        ("放", r"(?<![开播投排释发下])放(?:入|到|进|至)", ("在",)),
        ("住", r"(?<=住)在", ()),
        ("录夹径", r"(目录|文件夹|路径)(?:下面?|里面?|之?中|之?内)", (1,)),
        ("掉", r"(?<=[坏拔杀吃喝卖倒擦撕洗烧忘改辞退断换砍拆剪脱])掉", ()),
        # A verb at the end of its clause.
        (
            "用",
            r"(?<![使采利启禁停通费信作引调占可应不没服食租日常专耐实雇聘享套盗挪选备饮录起领适公])用(?=了?(?:[,.]|$))",
            ("使用",),
        ),
        ("用", r"(?<=不能)用(?=了?(?:[,.]|$))", ("使用",)),
    ),
    "ja": (
        *_ORDINALS,
        ("た", r"(?<=[見出寝着来借りべめけせてえれきしちびに食])たい(?![^,.でとのがけかなと]|ら)", ("願っている",)),
        ("し", r"しか([^,.ぁ-ん]{0,3}[ぁ-ん]{0,4}?)(?:ない|ません)(?=[,.]|$)", ("だけ", 1, "る")),
        ("し", r"しか([^,.ぁ-ん]{0,3}[ぁ-ん]{0,4}?)(?:なかった|ませんでした)(?=[,.]|$)", ("だけ", 1, "た")),
        ("名", rf"(?<={_JA_NUMBER})名様?", ("人",)),
        ("つコケ箇脚台", rf"(?<={_JA_NUMBER})[つコケ箇脚台](?![所国場風本車帳])", ("個",)),
        ("どい度", rf"({_JA_NUMBER}+[^,.ぁ-ん{_JA_NUMBER[1:-1]}]{{0,2}})(?:ほど|[くぐ]らい|程度)(?!の)", ("約", 1)),
        ("半", rf"(?<={_JA_NUMBER})(時間|年|日|週間|か月|ヶ月|カ月)半", ("半", 1)),
        # How often.
        ("回度", r"(?:毎|[一1])(日)に?[一1][回度]", ("毎", 1)),
        ("回度", rf"(?<!{_JA_NUMBER})[一1](日|週間?|か月|年)(?:に|につき)?(?={_JA_NUMBER}+[回度])", ("毎", 1)),
        ("回度", rf"(?<!{_JA_NUMBER})(?<!{_JA_NOUN})毎?([年月週])に?[一1][回度]", ("毎", 1)),
        ("回度", rf"({_JA_SPAN}|四半期)に[一1][回度]", (1, "ごとに")),
        ("毎", rf"({_JA_SPAN})毎に?", (1, "ごとに")),
        ("お", rf"({_JA_NUMBER}+(?:時間|分|秒))おきに?", (1, "ごとに")),
        ("間", rf"(?<={_JA_NUMBER})([年週分秒]|か月|ヶ月|カ月)間(?!隔)", (1,)),
        ("度", r"(?<!もう)([一二三1-3])度(?![もに以Cで上下高低のま])", (1, "回")),
        ("本", rf"(?<![^,.])本(?![日番社人棚屋当来年月格])(?={_JA_NOUN}{{2}})", ("この",)),
        # What may be done.
        ("え", r"使え(?=[るまた]|な[いかく])", ("使用でき",)),
        *(
            (low, rf"(?<=[{verbs}]){low}(?=る|ま[すせ]|な[いかく])", (f"{high}ことができ",))
            for low, high, verbs in _JA_POTENTIALS
        ),
        ("い", r"(?<=[るうくすつぬぶむぐ])(?:より)?(?:ほか|しか)ない", ("ざるを得ない",)),
        ("と", r"たところ(?![だでにをがの])", ("たら",)),
        (
            "~",
            rf"({_JA_NUMBER}[^,.~]{{0,3}})~({_JA_NUMBER}[^,.]{{0,5}}?[日時分月年円人回階個])(?:まで)?",
            (1, "から", 2, "まで"),
        ),
        ("事", r"(?<=[るうくすつぬぶむぐいた])事(?=[,.をがはもに]|$)", ("こと",)),
        ("以", r"(?<![^,.])以前(?=は|,)", ("かつて",)),
        ("場", r"場合が(?=あ|ござ)", ("ことが",)),
        ("だ", r"(?<![,.])(?<!^)だから", ("だので",)),
        ("わ", r"ないわけには?いかない", ("なければならない",)),
        # Steps.
        ("まはに", r"(?:まず(?!い)|最初に|先に|はじめに)(?=[^.]{2,60}(?:次に|それから|その後|続いて|てから))", ()),
        # What is done, and what is going on.
        ("行", rf"(?<!{_JA_NOUN})行な?わ", ("さ",)),
        ("行", rf"(?<!{_JA_NOUN})行(?:い(?=[またつな,])|ない(?=ま|ました))", ("し",)),
        ("行", rf"(?<!{_JA_NOUN})行な?う", ("する",)),
        ("行", r"(?<=[をがはも])行な?っ(?=[てた])", ("し",)),
        ("行", rf"(?<!{_JA_NOUN})行え(?!ば)", ("でき",)),
        ("施", r"実施(?=[しさすせで])", ()),
        ("そ", r"(?<=[るたうくすつぬぶむぐだ])そう(?=な|で|だ)", ("とのこと",)),
        ("そ", r"(?<=[ちりきしみびぎえけげせてねべめれ])そう(?=だ|です)", ("らしい",)),
        ("済", rf"(?<={_JA_NOUN})済み?(?=です|だ|である|の|[,.]|$)", ()),
        ("中", rf"(?<=[^午途集間週月年日夜空水界]{_JA_NOUN})中(?=です|だ|である|のため|なので)", ()),
    ),
}


def rewrite(pieces: list[Piece], language: Language) -> list[Piece]:
    """Return the pieces with one form in place of the others that say the same."""
    if not (rules := _compile(language.code)):
        return pieces
    pieces = _spell_out(pieces, language)
    signs = "".join(map(_sign, pieces))
    present = frozenset(signs)
    for needed, pattern, template in rules:
        if needed.isdisjoint(present):
            continue
        matches = list(pattern.finditer(signs))
        for match in reversed(matches):
            pieces[match.start() : match.end()] = _fill(template, match, pieces)
        if matches:
            signs = "".join(map(_sign, pieces))
    return pieces


def _spell_out(pieces: list[Piece], language: Language) -> list[Piece]:
    """Return the pieces with what the contractions stand for in their places."""
    signs = "".join(map(_sign, pieces))
    for match in reversed(list(_compile_contractions(language.code).finditer(signs))):
        pieces[match.start() : match.end()] = _fill((language.contractions[match[0]],), match, pieces)
    return pieces


@cache
def _compile_contractions(code: str) -> re.Pattern[str]:
    """Return the pattern of the contractions of a language, the longest one first."""
    forms = sorted(load_language(code).contractions, key=len, reverse=True)
    return re.compile("|".join(map(re.escape, forms)) or "(?!)")


@cache
def _compile(code: str) -> Rules:
    classes = load_language(code).classes
    return tuple(
        (frozenset(needed), re.compile(_CLASS.sub(lambda match: "|".join(classes[match[1]]), pattern)), form)
        for needed, pattern, form in _RULES.get(code, ())
    )


def _sign(piece: Piece) -> str:
    if piece.kind in ("stop", "comma"):
        return "." if piece.kind == "stop" else ","
    text = piece.lower
    if piece.kind == "literal":
        number = piece.key.removeprefix("number:")  # also of the sign １
        return "_" if number == piece.key else number if len(number) == 1 else "#"
    return text if len(text) == 1 else "_"


def _fill(template: Template, match: re.Match[str], pieces: Sequence[Piece]) -> list[Piece]:
    """Return the pieces that stand in the place of a match."""
    filled: list[Piece] = []
    first = pieces[match.start()] if match.end() > match.start() else None
    for part in template:
        if isinstance(part, int):
            start, end = match.span(part)
            filled += pieces[start:end] if start >= 0 else []
        elif first is not None:
            filled += [Piece("word", sign, sign, "", first.start) for sign in part]
    return filled
